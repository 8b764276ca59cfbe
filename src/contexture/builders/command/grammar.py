"""From what somebody typed to a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from contexture.builders.command.arguments import Arguments
from contexture.builders.command.lexer import SHOWN, Kind, Token, tokens
from contexture.builders.command.parsed import ParsedCommand
from contexture.builders.command.windows import Window
from contexture.builders.command.words import MODES, Command, Key
from contexture.errors import InvalidRequest

LONGEST = 4_096
"""Characters of a command with its arguments."""

_HEAD = re.compile(r"\s*(\S*)")
_CLOSE = 0.6
_CLOSE_MODE = 0.8


def parse(raw_command: str, args: str = "") -> ParsedCommand:
    """The command that `raw_command` and its arguments say.

    parse("/ask", 'window=24h topic="AI trends" k=8')

    Raises `InvalidRequest`, which says what was not understood, where, and shows what would have been.
    """
    line = f"{raw_command} {args}" if args else raw_command
    if len(line) > LONGEST:
        raise InvalidRequest(f"the command has {len(line):,} characters; write at most {LONGEST:,}")
    name, start = _name(line)
    found = tokens(line, start)
    command, used = _command(name, found)
    given = Arguments(line, found[used:], verbatim=command is Command.STORE).read()
    return _parsed(command, given.values, given.text)


def _name(line: str) -> tuple[str, int]:
    """The word that names the command, and where it ends; whatever a chat appends to it (`@bot`) is left out."""
    found = _HEAD.match(line)
    word = found[1] if found else ""
    name = word.partition("@")[0].lower()
    if name not in MODES:
        raise InvalidRequest(_unknown(word, name))
    return name, len(found[0]) if found else 0


def _unknown(word: str, name: str) -> str:
    if not word:
        return f"there is no command; begin with one of {', '.join(MODES)}, such as /ask window=24h topic=AI"
    close = get_close_matches(f"/{name.lstrip('/')}", MODES, n=1, cutoff=_CLOSE)
    meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(MODES)}"
    return f"{word[:SHOWN]!r} is not a command; {meant}"


def _command(name: str, found: Sequence[Token]) -> tuple[Command, int]:
    """The command with its mode, and how many tokens say that."""
    modes = MODES[name]
    first = found[0].text.lower() if found and found[0].kind is Kind.WORD else ""
    if not first or name != "/memory" or first in modes:
        return modes.get(first, modes[""]), int(first in modes and bool(first))
    if close := get_close_matches(first, modes, n=1, cutoff=_CLOSE_MODE):
        raise InvalidRequest(
            f"{first!r} at character {found[0].start + 1} is not a mode of /memory; did you mean /memory {close[0]}? "
            f'Words to look for can stand in quotes: /memory recall "{first}"'
        )
    return modes[""], 0


def _parsed(command: Command, values: dict[Key, Any], text: str) -> ParsedCommand:
    window, rerank = values.get(Key.WINDOW), values.get(Key.RERANK)
    k, hops, query = values.get(Key.K), values.get(Key.HOPS), values.get(Key.QUERY)
    return ParsedCommand(
        command=command,
        window=None if window is None else Window(window),
        lang=values.get(Key.LANG),
        sources=values.get(Key.SOURCES, ()),
        domains=values.get(Key.DOMAINS, ()),
        topic=values.get(Key.TOPIC),
        entity=values.get(Key.ENTITY),
        query=f"{query} {text}" if query is not None and text else query,
        text="" if query is not None else text,
        k=None if k is None else int(k),
        hops=None if hops is None else int(hops),
        rerank=None if rerank is None else rerank == "true",
        policy=values.get(Key.POLICY),
    )
