"""Which model a command is meant for, and which ones step in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from contexture.builders.command.words import Command
from contexture.errors import InvalidRequest

Routing = Mapping[str, tuple[str, ...]]

ROUTING: Routing = MappingProxyType(
    {
        Command.ASK: ("gpt-5", "claude-4.5", "gemini-2.5-pro"),
        Command.EVENTS: ("gpt-5", "gemini-2.5-pro", "claude-4.5"),
        Command.GRAPH: ("claude-4.5", "gpt-5", "gemini-2.5-pro"),
        Command.SYNTHESIZE: ("gpt-5", "claude-4.5"),
        Command.SUGGEST: ("gemini-2.5-pro", "gpt-5"),
        Command.STORE: ("gemini-2.5-pro", "gpt-5"),
        Command.RECALL: ("gemini-2.5-pro", "gpt-5"),
    }
)
"""For each command the model it is for, then its fallbacks in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """The model a command is for, and its fallbacks in order."""

    primary: str
    fallback: tuple[str, ...]


def routing(changes: Routing) -> Routing:
    """The table with other models for some commands."""
    for command, names in changes.items():
        if command not in ROUTING:
            raise InvalidRequest(f"{command!r} is not a command; there are {', '.join(ROUTING)}")
        if not names or not all(names):
            raise InvalidRequest(f"{command!r} needs at least one model")
    return MappingProxyType({**ROUTING, **changes})


def models_for(command: Command, table: Routing = ROUTING) -> Models:
    """The models of a command."""
    primary, *fallback = table[command]
    return Models(primary=primary, fallback=tuple(fallback))
