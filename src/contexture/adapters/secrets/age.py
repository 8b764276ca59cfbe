"""Secrets from a file of `KEY=value` lines that is encrypted with age."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from contexture.adapters.secrets.local import parse_secrets, warn_if_readable_by_others
from contexture.errors import InvalidRequest

try:
    import pyrage  # pyright: ignore[reportMissingTypeStubs] - it has none
except ImportError as missing:
    raise ImportError('files encrypted with age need pyrage: pip install "contexture-ai[age]"') from missing

_IDENTITY_PREFIX = "AGE-SECRET-KEY-"
_age = cast("Any", pyrage)  # it has no type hints
_decrypt = cast("Callable[[bytes, list[object]], bytes]", _age.decrypt)
_parse_identity = cast("Callable[[str], object]", _age.x25519.Identity.from_str)
_DecryptError = cast("type[Exception]", _age.DecryptError)
_IdentityError = cast("type[Exception]", _age.IdentityError)


class AgeSecrets:
    """The secrets of one encrypted file, decrypted once, in memory only.

    `identity` is a file written by `age-keygen`; any of its identities may decrypt the secrets. An identity file that
    others may read logs a warning. Raises `InvalidRequest`; no error shows any content of the two files.

    AgeSecrets(Path("secrets.env.age"), identity=Path("identity.txt"))
    """

    def __init__(self, path: Path, *, identity: Path) -> None:
        keys = _read_identities(_read_file(identity, "age identity").decode("utf-8", "replace"), identity)
        warn_if_readable_by_others(identity)
        encrypted = _read_file(path, "secrets")
        try:
            text = _decrypt(encrypted, keys).decode("utf-8-sig")
        except _DecryptError as failure:
            raise InvalidRequest(
                f"the secrets file {str(path)!r} cannot be decrypted with {str(identity)!r}"
            ) from failure
        except UnicodeDecodeError as failure:
            raise InvalidRequest(f"the secrets file {str(path)!r} is not UTF-8") from failure
        self._known = parse_secrets(text, path)

    def known_values(self) -> Mapping[str, str]:
        """Values by key; the last of several lines with the same key wins."""
        return dict(self._known)


def _read_identities(text: str, path: Path) -> list[object]:
    lines = [line.strip() for line in text.splitlines()]
    try:
        found = [_parse_identity(line) for line in lines if line.startswith(_IDENTITY_PREFIX)]
    except _IdentityError as failure:
        raise InvalidRequest(f"the age identity file {str(path)!r} contains an invalid identity") from failure
    if not found:
        raise InvalidRequest(f"the age identity file {str(path)!r} has no line that starts with {_IDENTITY_PREFIX}")
    return found


def _read_file(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise InvalidRequest(f"the {what} file {str(path)!r} cannot be read: {failure.strerror}") from failure
