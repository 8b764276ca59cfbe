"""Credentials are found by their form or by the name they are assigned to; stand-ins are not."""

from __future__ import annotations

import pytest

from contexture.adapters.redaction._credentials import CREDENTIAL_RULES
from contexture.adapters.redaction._rules import RuleRedactor

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
    "ctx_" + "0123456789ab" + "_" + (LETTERS * 2)[:43],
    "sk-proj-" + LETTERS,
    "sk-proj-" + LETTERS[:10],
    "sk-proj-" + LETTERS * 5,
    "sk-svcacct-" + LETTERS[:16],
    "sk-" + LETTERS + LETTERS[:16],
    "gsk_" + LETTERS + LETTERS[:20],
    "r8_" + LETTERS + "abcde",
    "xai-" + LETTERS * 2,
    "ntn_" + LETTERS + LETTERS[:14],
    "sbp_" + "0a1b2c3d4e" * 4,
    "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n" + LETTERS * 2 + "\nPrivate-MAC: 2a629a",
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
    ("Cookie: theme=dark; sessionid={}; lang=en", LETTERS),
    ("Set-Cookie: JSESSIONID={}; Path=/", LETTERS),
    ("PHPSESSID={}", LETTERS[:26]),
    ("connect.sid={}", "s%3A" + LETTERS),
    ("Private-Lines: 1\n{}", LETTERS * 2),
    ("Passwort: {}", "hunter22!"),
    ("Das Kennwort ist {}", "hunter22!"),
    ("Das Passwort lautet {}", "hunter22!"),
    ("mot de passe : {}", "hunter22!"),
    ("le mot de passe du wifi est {}", "hunter22!"),
    ("contraseña: {}", "hunter22!"),
    ("La clave es {}", "hunter22!"),
    ("пароль от роутера: {}", "hunter22!"),
    ("Пароль:\n  {}", "hunter22!"),
    ("the password for the router is {}", "hunter22!"),
    ("mi clave es: {}", "hunter22!"),
    ("password: {}", "P@$$w0rd!"),
    ("Passwort: {}", "50%off*Now"),
    ("contraseña: {}", "Luna4455$"),
    ("my password {}, thanks", "hunter2"),
    ("log in as anna, password {}", "P@ssw0rd!"),
    ("the passphrase {} opens it", "tr0ub4dor&3"),
    ("--password {} --verbose", "pa$$word"),
    ("| password | {} |", "abc123def"),
    ("**Password** `{}`", "letmein99"),
    ("passcode {}", "482913"),
    ("пароль {}", "qwerty123"),
    ("войди с паролем {} и смотри", "зима2024"),
    ("Passwort {}", "Sommer2024"),
    ("Zugangscode {}", "8831X7"),
    ("mot de passe {}", "soleil42"),
    ("contraseña {}", "gato1234"),
    ("clave {}", "perro77"),
]
PROSE = [
    "password protected", "the password manager", "Passwort vergessen?", "Пароль сброшен", "mot de passe oublié",
    "contraseña olvidada", "clave foránea", "a password sha256 hash", "password SHA-512", "password base64-encoded",
    "password 2FA", "password 12-character minimum", "password 256-bit key", "пароль 8 символов", "Passwort 8 Zeichen",
    "password VARCHAR2(64)", "password OAuth2 flow", "password page-3", "password field2", "password in 2024",
    "password <SECRET_1>", "password $PASSWORD", "password {password}", "password username/password", "password ****",
    "`Password &#x3C;<span>", "password 90days", "password ISO-27001", "password reset2", "passwords 12345",
]  # fmt: skip
NOT_FOUND = [
    "password = os.environ['DB_PASSWORD']",
    "password: ${DB_PASSWORD}",
    "password: app1-${DB_PASSWORD}",
    "password: %PASSWORD1%",
    'password = f"{user1}-{host}"',
    "password: *********12",
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
    "session = requests.Session()",
    "sessionid=${SESSION_ID_OF_THE_USER}",
    "Cookie: the second part is about biscuits",
    "the sk-project-name and the xai-interpretability-workshop",
    "Das Passwort ist falsch",
    "le mot de passe est incorrect",
    "La clave es la paciencia",
    "_authToken=743b294a-cd03-11ec-9d64-0242ac120002",
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


@pytest.mark.parametrize("text", PROSE)
def test_what_prose_says_of_passwords_is_not_one(text):
    """Algorithms, sizes, numbered things and words stand behind the word as often as passwords."""
    assert not REDACTOR.scan(text, "en")


@pytest.mark.parametrize(("text", "secret"), [each for each in ASSIGNED if "://" not in each[0]])
def test_a_redacted_password_is_not_redacted_again(text, secret):
    """Whatever stands for it: a placeholder, asterisks or a hash."""
    for shown in ("<SECRET_1>", "*" * len(secret), "<SECRET_3f2a9c1d>"):
        assert not REDACTOR.scan(text.format(shown), "en")
