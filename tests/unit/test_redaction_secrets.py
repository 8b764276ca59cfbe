"""Credentials are found by their form or by the name they are assigned to; stand-ins are not."""

from __future__ import annotations

import pytest

from contexture.adapters.redaction.credentials import CREDENTIAL_RULES
from contexture.adapters.redaction.rules import RuleRedactor

REDACTOR = RuleRedactor(CREDENTIAL_RULES)
LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"

# Assembled here, so that no scanner of this repository takes an example for a leak.
FOUND = [
    "AKIA" + "Z" * 16,
    "ghp_" + LETTERS + "abcd",
    "github_pat_" + LETTERS * 2,
    "glpat-" + LETTERS[:20],
    "xoxb-" + "123456789012-" + LETTERS,
    "https://hooks.slack.com/services/T00000000/B00000000/" + LETTERS[:24],
    "sk_live_" + LETTERS[:24],
    "sk_test_" + LETTERS[:24],
    "sk-ant-api03-" + LETTERS * 2,
    "sk-proj-" + LETTERS[:20] + "T3BlbkFJ" + LETTERS[:20],
    "AIza" + LETTERS + "abc",
    "SG." + LETTERS[:22] + "." + (LETTERS * 2)[:43],
    "npm_" + LETTERS + "abcd",
    "hf_" + LETTERS,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + LETTERS,
]
ASSIGNED = [
    ("db_password = '{}'", "sunshine"),
    ('"apiKey": "{}"', "k3yk3yk3y"),
    ("password: {}", "hunter2!"),
    ("PASSWORD={}", "Tr0ub4dor&3"),
    ("the password is {}", "hunter2"),
    ("password: {}", "12345678"),
    ("client_secret: {}", LETTERS),
    ("softlayer_api_key {}", "0123456789abcdef" * 4),
    ("пароль: {}", "qwerty123"),
    ("Пароль — {}", "зима2024"),
    ("Authorization: Bearer {}", LETTERS),
    ("postgres://app:{}@db.internal/main", "s3cr3t"),
    ("//registry.npmjs.org/:_authToken={}", "npm_" + LETTERS),
    ("AccountKey={}", "lJzRc1Yd" * 10 + "lJzRc1=="),
]
NOT_FOUND = [
    "password = os.environ['DB_PASSWORD']",
    "password: ${DB_PASSWORD}",
    'api_key="%s" % KEY',
    'APIKEY: "insert_key_here"',
    "password = getpass.getpass()",
    "token: string",
    "the password is wrong!",
    "max tokens: 4096, token: 128000",
    "password: please ask the administrator",
    "secretary = Anna2 and the passive 868-MHz signal",
    "we worked on our passing drills!",
    "пароль введён неверно!",
    "https://url:8000/ @something",
    "eyJAAAA.eyJBBB",
    "-----BEGIN PUBLIC KEY-----",
    "pk_live_" + LETTERS[:24],
    "the key to success is practice2",
]


@pytest.mark.parametrize("secret", FOUND)
def test_a_credential_is_found_whole_by_its_form(secret: str) -> None:
    """Every character of the credential is covered, wherever it stands."""
    text = f"use {secret} for now"
    spans = REDACTOR.scan(text, "")

    assert {"SECRET"} == {span.label for span in spans}
    assert spans[0].start <= text.index(secret)
    assert spans[-1].end >= text.index(secret) + len(secret)


@pytest.mark.parametrize(("template", "value"), ASSIGNED)
def test_a_value_is_found_by_the_name_it_is_assigned_to(template: str, value: str) -> None:
    """The value is hidden; with an assignment, the name stays readable."""
    text = template.format(value)
    hidden = "".join(text[span.start : span.end] for span in REDACTOR.scan(text, ""))

    assert value in hidden


@pytest.mark.parametrize("text", NOT_FOUND)
def test_stand_ins_and_prose_are_left_alone(text: str) -> None:
    """Variables, types, examples and sentences about passwords are no credentials."""
    assert [] == [text[span.start : span.end] for span in REDACTOR.scan(text, "")]
