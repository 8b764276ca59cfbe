"""Secrets in a file of `KEY=value` lines that is encrypted with age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from contexture.adapters.secrets.file import parsed, warn_if_open
from contexture.errors import InvalidRequest

try:
    import pyrage  # pyright: ignore[reportMissingTypeStubs] - it has none
except ImportError as missing:
    raise ImportError('files encrypted with age need pyrage: pip install "contexture[age]"') from missing

_KEY = "AGE-SECRET-KEY-"
_age = cast("Any", pyrage)  # it has no types
_decrypt = cast("Callable[[bytes, list[object]], bytes]", _age.decrypt)
_identity = cast("Callable[[str], object]", _age.x25519.Identity.from_str)
_NotDecrypted = cast("type[Exception]", _age.DecryptError)
_NoIdentity = cast("type[Exception]", _age.IdentityError)


class AgeSecrets:
    """The secrets of one encrypted file, decrypted once, in memory only.

    `identity` is a file as `age-keygen` writes it; any of its identities may open the file. An identity file that
    others may read is a warning in the log. No error shows anything of what either file holds.

    AgeSecrets(Path("secrets.env.age"), identity=Path("identity.txt"))
    """

    def __init__(self, path: Path, *, identity: Path) -> None:
        keys = _identities(_read(identity, "age identity").decode("utf-8", "replace"), identity)
        warn_if_open(identity)
        encrypted = _read(path, "secrets")
        try:
            text = _decrypt(encrypted, keys).decode("utf-8-sig")
        except _NotDecrypted as failure:
            raise InvalidRequest(
                f"the secrets file {str(path)!r} cannot be decrypted with {str(identity)!r}"
            ) from failure
        except UnicodeDecodeError as failure:
            raise InvalidRequest(f"the secrets file {str(path)!r} is not UTF-8") from failure
        self._known = parsed(text, path)

    def known(self) -> Mapping[str, str]:
        """Every key with its value; of two lines with one key the last holds."""
        return dict(self._known)


def _identities(text: str, path: Path) -> list[object]:
    lines = [line.strip() for line in text.splitlines()]
    try:
        found = [_identity(line) for line in lines if line.startswith(_KEY)]
    except _NoIdentity as failure:
        raise InvalidRequest(f"the age identity file {str(path)!r} holds an identity that is not one") from failure
    if not found:
        raise InvalidRequest(f"the age identity file {str(path)!r} holds no line that starts with {_KEY}")
    return found


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise InvalidRequest(f"the {what} file {str(path)!r} cannot be read: {failure.strerror}") from failure
