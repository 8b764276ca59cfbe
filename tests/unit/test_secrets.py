"""Where secrets come from, and that nothing shows them."""

from __future__ import annotations

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from contexture import Settings, wiring
from contexture.adapters.secrets.local import CombinedSecrets, EnvironmentSecrets, FileSecrets
from contexture.errors import InvalidRequest
from contexture.pipeline.masking import mask_secrets

KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,12}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)


def secrets(folder, text, mode=0o600):
    """The secrets in a file with this text."""
    path = folder / "secrets.env"
    path.write_bytes(text.encode())
    path.chmod(mode)
    return FileSecrets(path).known_values()


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("KEY=value", "value"),
        ("  KEY = value  ", "value"),
        ("export KEY=value", "value"),
        ("KEY=a=b#c", "a=b#c"),
        ("KEY=value # a note", "value"),
        ("KEY='a # b'  # a note", "a # b"),
        (r"KEY='a\nb'", r"a\nb"),
        (r'KEY="a\n\"b\"\\"', 'a\n"b"\\'),
        (r'KEY="a\d"', r"a\d"),
        ('KEY="it\'s"', "it's"),
        ("KEY=it's", "it's"),
        ("KEY=пароль", "пароль"),
        ("KEY=value\r", "value"),
    ],
)
def test_a_line_is_read(tmp_path, line, value):
    """Spaces, quotes, escapes and notes mean what they usually mean."""
    assert {"KEY": value} == secrets(tmp_path, f"# a note\n\n{line}\n")


def test_an_empty_value_is_no_secret_and_the_last_line_of_a_key_holds(tmp_path):
    """Masking nothing would mask everything."""
    assert {"B": "2"} == secrets(tmp_path, "A=\nA2=''\nB=1\nB=2\n")


@pytest.mark.parametrize(
    "line", ["hunter2", "=hunter2", "1KEY=hunter2", "KEY='hunter2", 'KEY="hunter2" x', 'KEY="hunter2\\']
)
def test_a_bad_line_is_named_and_not_shown(tmp_path, line):
    """The error has the number of the line and nothing of what is in it."""
    with pytest.raises(InvalidRequest, match=r"not KEY=value: 2;") as refused:
        secrets(tmp_path, f"GOOD=1\n{line}\n")

    assert "hunter2" not in str(refused.value)


@given(known=st.dictionaries(KEYS, VALUES, max_size=5), quote=st.sampled_from(['"', "'"]))
def test_quoted_values_come_back(tmp_path_factory, known, quote):
    """Whatever is written in quotes, escaped where needed, is read letter for letter."""
    kept = {key: value for key, value in known.items() if quote == '"' or "'" not in value}
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"') if quote == '"' else value for key, value in kept.items()
    }
    lines = "\n".join(f"{key}={quote}{value}{quote}" for key, value in escaped.items())

    assert kept == secrets(tmp_path_factory.mktemp("secrets"), lines)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o400, 0), (0o640, 1), (0o644, 1)])
def test_a_file_that_others_may_read_is_a_warning(tmp_path, mode, warned):
    """The log names the file and its mode, and none of its values."""
    with structlog.testing.capture_logs() as logged:
        secrets(tmp_path, "KEY=hunter2", mode)

    assert warned == len(logged)
    assert "hunter2" not in str(logged)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    """A path that was mistyped must not mean that nothing is masked."""
    (tmp_path / "latin").write_bytes(b"KEY=\xff")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        FileSecrets(tmp_path / "none")
    with pytest.raises(InvalidRequest, match="is not UTF-8"):
        FileSecrets(tmp_path / "latin")


def test_variables_with_the_prefix_are_secrets():
    """The key is the name without the prefix; empty ones and the bare prefix are none."""
    environment = {"SECRET_DB": "hunter2", "SECRET_": "x", "SECRET_NONE": "", "OTHER": "y"}

    assert {"DB": "hunter2"} == EnvironmentSecrets(environment, prefix="SECRET_").known_values()
    assert {} == EnvironmentSecrets(environment, prefix="").known_values()


@given(sources=st.lists(st.dictionaries(st.sampled_from("AB"), st.sampled_from(["one", "two", "three"])), max_size=4))
def test_every_value_of_every_source_is_masked(sources):
    """When two sources disagree about a key, the later one has it, and both values are known."""
    combined = CombinedSecrets(
        [EnvironmentSecrets({f"x{k}": v for k, v in each.items()}, prefix="x") for each in sources]
    )
    merged = {key: value for each in sources for key, value in each.items()}
    values = {value for each in sources for value in each.values()}

    assert merged == {key: combined.known_values()[key] for key in merged}
    assert values == set(combined.known_values().values())


def test_settings_name_the_sources(tmp_path, monkeypatch):
    """Variables with the prefix and the file are both known, and masked."""
    (tmp_path / "secrets").write_text("API=swordfish\n")
    monkeypatch.setenv("VAULT_DB", "hunter2")
    known = wiring.secrets(Settings(secrets_prefix="VAULT_", secrets_file=tmp_path / "secrets")).known_values()

    assert "§§secret(DB) §§secret(API)" == mask_secrets("hunter2 swordfish", known)
    assert {} == wiring.secrets(Settings()).known_values()
