"""A command as it was understood, and as it is written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contexture.builders.command.windows import Window
from contexture.builders.command.words import Command, Key

_PLAIN = re.compile(r"[\w.-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedCommand:
    """What somebody typed; what they left out is None or empty.

    `text` is what stands outside all keys; with a `query` it has become part of that. `printed` writes a command
    that is understood as the same one.
    """

    command: Command
    window: Window | None = None
    lang: str | None = None
    sources: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    topic: str | None = None
    entity: str | None = None
    query: str | None = None
    text: str = ""
    k: int | None = None
    hops: int | None = None
    rerank: bool | None = None
    policy: str | None = None

    def printed(self) -> str:
        """The command in its normal form."""
        said = {
            Key.WINDOW: self.window,
            Key.LANG: self.lang,
            Key.SOURCES: _listed(self.sources),
            Key.DOMAINS: _listed(self.domains),
            Key.TOPIC: _quoted(self.topic),
            Key.ENTITY: _quoted(self.entity),
            Key.QUERY: _quoted(self.query),
            Key.K: self.k,
            Key.HOPS: self.hops,
            Key.RERANK: None if self.rerank is None else str(self.rerank).lower(),
            Key.POLICY: self.policy,
        }
        parts = [f"{key}={value}" for key, value in said.items() if value is not None]
        return " ".join([self.command, *parts, *([_quote(self.text)] if self.text else [])])


def _listed(names: tuple[str, ...]) -> str | None:
    if not names:
        return None
    plain = all(_PLAIN.fullmatch(name) for name in names)
    return ",".join(names) if plain else _quote(",".join(names))


def _quoted(text: str | None) -> str | None:
    return None if text is None else _quote(text)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
