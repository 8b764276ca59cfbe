"""Secrets from files encrypted with age, and from Vault."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import structlog

from contexture import Settings, wiring
from contexture.adapters.secrets.vault import VaultSecrets
from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable

pytest.importorskip("pyrage", reason="age needs the extra `age`")

import pyrage

from contexture.adapters.secrets.age import AgeSecrets


@pytest.fixture
def identity(tmp_path):
    """An identity, and its file as `age-keygen` writes it."""
    made = pyrage.x25519.Identity.generate()
    path = tmp_path / "identity.txt"
    path.write_text(f"# created: 2026-01-01\n# public key: {made.to_public()}\n{made}\n")
    path.chmod(0o600)
    return made, path


def encrypted(folder, identity, text):
    """A file that only this identity opens."""
    path = folder / "secrets.env.age"
    path.write_bytes(pyrage.encrypt(text.encode(), [identity.to_public()]))
    return path


def test_an_encrypted_file_gives_its_secrets(tmp_path, identity):
    """As a plain file would, without anything decrypted on disk."""
    path = encrypted(tmp_path, identity[0], "DB=hunter2\nexport API='a b'\n")
    settings = Settings(secrets_age_file=path, secrets_age_identity=identity[1])

    assert {"DB": "hunter2", "API": "a b"} == wiring.secrets(settings).known_values()
    assert not any(b"hunter2" in each.read_bytes() for each in tmp_path.iterdir())


def test_another_identity_opens_nothing(tmp_path, identity):
    """The error names both files and shows neither."""
    path = encrypted(tmp_path, pyrage.x25519.Identity.generate(), "DB=hunter2")
    with pytest.raises(InvalidRequest, match="cannot be decrypted") as told:
        AgeSecrets(path, identity=identity[1])

    assert str(identity[0]) not in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"), [("", "has no line"), ("AGE-SECRET-KEY-1BROKEN", "invalid identity"), (None, "cannot be read")]
)
def test_an_identity_file_that_is_none_is_refused(tmp_path, identity, text, said):
    """Its content is not repeated."""
    path = encrypted(tmp_path, identity[0], "DB=hunter2")
    wrong = tmp_path / "wrong.txt"
    if text is not None:
        wrong.write_text(text)
    with pytest.raises(InvalidRequest, match=said) as told:
        AgeSecrets(path, identity=wrong)

    assert "BROKEN" not in str(told.value)


def test_lines_that_are_no_secrets_are_named_by_number(tmp_path, identity):
    """What was encrypted must not turn up in a message."""
    path = encrypted(tmp_path, identity[0], "DB=hunter2\nhunter3\n")
    with pytest.raises(InvalidRequest, match="not KEY=value: 2") as told:
        AgeSecrets(path, identity=identity[1])

    assert "hunter" not in str(told.value)


def test_an_identity_that_others_may_read_is_a_warning(tmp_path, identity):
    """The file that opens the others is the one to guard."""
    path = encrypted(tmp_path, identity[0], "DB=hunter2")
    identity[1].chmod(0o644)
    with structlog.testing.capture_logs() as logged:
        AgeSecrets(path, identity=identity[1])

    assert [("the secrets file is readable by other users", str(identity[1]))] == [
        (each["event"], each["path"]) for each in logged
    ]


def test_an_encrypted_file_needs_an_identity(tmp_path):
    """Whoever names one and not the other is told."""
    with pytest.raises(InvalidRequest, match="CONTEXTURE_SECRETS_AGE_IDENTITY"):
        wiring.secrets(Settings(secrets_age_file=tmp_path / "x"))


def test_the_missing_extra_says_what_to_type():
    """One sentence, with the command."""
    code = (
        "import sys; sys.modules['pyrage'] = None\n"
        "try:\n    import contexture.adapters.secrets.age\n"
        "except ImportError as missing:\n    print(missing)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert 'files encrypted with age need pyrage: pip install "contexture-ai[age]"\n' == found.stdout


class Vault(BaseHTTPRequestHandler):
    """Speaks as much of Vault's KV v2 as is used."""

    def do_GET(self):
        """Answer as the path says, to those who present the token."""
        if self.path == "/v1/secret/data/silent":
            self.server.done.wait(30)
            return
        values = {"DB": "hunter2", "PORT": 5432, "EMPTY": ""}
        bodies = {
            "/v1/secret/data/contexture": {"data": {"data": values, "metadata": {"version": 3}}},
            "/v1/kv/contexture": {"data": values},
        }
        permitted = self.headers["X-Vault-Token"] == "hvs.1"
        body = json.dumps(bodies.get(self.path, {"errors": []})).encode() if permitted else b'{"errors": ["denied"]}'
        self.send_response(200 if permitted and self.path in bodies else 404 if permitted else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def vault():
    """The address of a Vault on a free port."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Vault)
    found.done = threading.Event()
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}/v1/"
    found.done.set()
    found.shutdown()
    found.server_close()


def test_vault_gives_its_texts(vault):
    """Numbers and empty values cannot be masked, so they are left out."""
    settings = Settings(secrets_vault_url=f"{vault}secret/data/contexture", secrets_vault_token="hvs.1")  # noqa: S106 - of a test

    assert {"DB": "hunter2"} == wiring.secrets(settings).known_values()


@pytest.mark.parametrize(
    ("path", "token", "said"),
    [
        ("secret/data/contexture", "hvs.wrong", "answered with 403"),
        ("secret/data/none", "hvs.1", "answered with 404"),
        ("kv/contexture", "hvs.1", "not a secret of KV version 2"),
    ],
)
def test_a_vault_that_does_not_give_them_is_an_error(vault, path, token, said):
    """Without its secrets nothing could be masked; neither they nor the token are in the message."""
    with pytest.raises(SourceUnavailable, match=said) as told:
        VaultSecrets(vault + path, token=token)

    assert "hunter2" not in str(told.value)
    assert token not in str(told.value)


def test_a_vault_that_does_not_answer_is_given_up(vault):
    """A start that hangs tells nobody why."""
    with pytest.raises(SourceTimeout, match=r"within 0\.05 seconds"):
        VaultSecrets(f"{vault}secret/data/silent", token="hvs.1", timeout=0.05)  # noqa: S106 - of a test


@pytest.mark.parametrize(("url", "kind"), [("http://127.0.0.1:9/", SourceUnavailable), ("vault:8200", InvalidRequest)])
def test_a_vault_that_is_not_there_is_an_error(url, kind):
    """A wrong address is told apart from a server that is down."""
    with pytest.raises(kind, match=r"Vault cannot be reached|the Vault address"):
        VaultSecrets(url, token="hvs.1")  # noqa: S106 - of a test
