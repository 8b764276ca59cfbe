"""Secrets in a file of `KEY=value` lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import structlog

from contexture.errors import InvalidRequest

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(?:'(?P<bare>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_OTHERS = 0o077


class FileSecrets:
    r"""The secrets of one file, read once.

    A value in single quotes is taken letter for letter; in double quotes `\n`, `\t`, `\r`, `\"` and `\\` have their
    usual meaning; without quotes it ends before ` #`. Blank lines and lines that start with `#` are skipped. A line
    that cannot be read is named by its number, never shown. A file that others may read is a warning in the log.
    """

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8-sig")
            warn_if_open(path)
        except OSError as failure:
            raise InvalidRequest(f"the secrets file {str(path)!r} cannot be read: {failure.strerror}") from failure
        except UnicodeDecodeError as failure:
            raise InvalidRequest(f"the secrets file {str(path)!r} is not UTF-8") from failure
        self._known = parsed(text, path)

    def known(self) -> Mapping[str, str]:
        """Every key with its value; of two lines with one key the last holds."""
        return dict(self._known)


def warn_if_open(path: Path) -> None:
    """Say in the log that others may read a file that only its owner should."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        structlog.get_logger().warning(
            "others may read the secrets file", path=str(path), mode=f"{mode & 0o777:04o}", advice="chmod 600"
        )


def parsed(text: str, path: Path) -> dict[str, str]:
    """The values by their keys; `path` is only named in errors."""
    found: dict[str, str] = {}
    bad: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        parts = _LINE.fullmatch(bare)
        value = _value(parts[2]) if parts else None
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


def _value(text: str) -> str | None:
    """What stands behind the equals sign; None when a quote is not closed or something follows it."""
    if text[:1] not in {"'", '"'}:
        return text.split(" #", 1)[0].rstrip()
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return None
    if quoted["bare"] is not None:
        return quoted["bare"]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), quoted["escaped"])
