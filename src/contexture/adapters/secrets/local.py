"""Secrets from a file of `KEY=value` lines, from prefixed environment variables, and from several sources combined."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from contexture.errors import InvalidRequest
from contexture.ports import Secrets

_ASSIGNMENT_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_QUOTED_VALUE = re.compile(r"""(?:'(?P<bare>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_OTHERS_MODE = 0o077


class FileSecrets:
    r"""The secrets of one file, read once.

    A value in single quotes is taken literally; in double quotes `\n`, `\t`, `\r`, `\"` and `\\` are escapes; without
    quotes it ends before ` #`. Blank lines and lines that start with `#` are skipped. Invalid lines raise
    `InvalidRequest` with their numbers, never their text. A file that others may read logs a warning.
    """

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8-sig")
            warn_if_readable_by_others(path)
        except OSError as failure:
            raise InvalidRequest(f"the secrets file {str(path)!r} cannot be read: {failure.strerror}") from failure
        except UnicodeDecodeError as failure:
            raise InvalidRequest(f"the secrets file {str(path)!r} is not UTF-8") from failure
        self._known = parse_secrets(text, path)

    def known_values(self) -> Mapping[str, str]:
        """Values by key; the last of several lines with the same key wins."""
        return dict(self._known)


def warn_if_readable_by_others(path: Path) -> None:
    """Log a warning if group or others have access to the file."""
    mode = path.stat().st_mode
    if mode & _OTHERS_MODE:
        structlog.get_logger().warning(
            "the secrets file is readable by other users",
            path=str(path),
            mode=f"{mode & 0o777:04o}",
            advice="chmod 600",
        )


def parse_secrets(text: str, path: Path) -> dict[str, str]:
    """Values by key; raises `InvalidRequest` for invalid lines. `path` is only used in errors."""
    found: dict[str, str] = {}
    bad: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        parts = _ASSIGNMENT_LINE.fullmatch(bare)
        value = _parse_value(parts[2]) if parts else None
        if parts is None or value is None:
            bad.append(number)
        elif value:
            found[parts[1]] = value
    if bad:
        named = ", ".join(map(str, bad[:10]))
        raise InvalidRequest(
            f"the secrets file {str(path)!r} has lines that are not KEY=value: {named}; their text is not shown"
        )
    return found


def _parse_value(text: str) -> str | None:
    """Parse the text after the equals sign; None if a quote is not closed or text follows it."""
    if text[:1] not in {"'", '"'}:
        return text.split(" #", 1)[0].rstrip()
    quoted = _QUOTED_VALUE.fullmatch(text)
    if quoted is None:
        return None
    if quoted["bare"] is not None:
        return quoted["bare"]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), quoted["escaped"])


class EnvironmentSecrets:
    """Environment variables that start with `prefix`, by their names without it.

    EnvironmentSecrets({"SECRET_DB": "hunter2"}, prefix="SECRET_").known_values()     # {'DB': 'hunter2'}
    """

    def __init__(self, environment: Mapping[str, str], *, prefix: str) -> None:
        self._known = {
            name.removeprefix(prefix): value
            for name, value in environment.items()
            if prefix and value and name.startswith(prefix) and name != prefix
        }

    def known_values(self) -> Mapping[str, str]:
        """Values by key."""
        return dict(self._known)


class CombinedSecrets:
    """The secrets of several sources; for the same key, the later source wins.

    Both values must be masked, so the earlier one is kept under its key with the suffix `#1`, `#2`, …
    """

    def __init__(self, sources: Sequence[Secrets]) -> None:
        self._sources = tuple(sources)

    def known_values(self) -> Mapping[str, str]:
        """Values by key."""
        found: dict[str, str] = {}
        for source in self._sources:
            for key, value in source.known_values().items():
                if found.get(key, value) != value:
                    found[_shadowed_key(key, found)] = found[key]
                found[key] = value
        return found


def _shadowed_key(key: str, taken: Mapping[str, str]) -> str:
    number = 1
    while f"{key}#{number}" in taken:
        number += 1
    return f"{key}#{number}"
