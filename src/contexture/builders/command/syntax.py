"""Vocabulary of the command language.

Commands, argument keys and their values, time windows, and `ParsedCommand` with its normal form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType


class Window(StrEnum):
    """A time window that ends now, in ascending order; a day has two names."""

    SIX_HOURS = "6h"
    TWELVE_HOURS = "12h"
    DAY = "24h"
    ONE_DAY = "1d"
    THREE_DAYS = "3d"
    WEEK = "1w"
    TWO_WEEKS = "2w"
    MONTH = "1m"
    THREE_MONTHS = "3m"
    SIX_MONTHS = "6m"
    YEAR = "1y"

    @property
    def span(self) -> timedelta:
        """The length of the window; a month has 30 days, a year 365."""
        count, unit = int(self.value[:-1]), self.value[-1]
        return count * _UNITS[unit]

    @property
    def wider(self) -> Window | None:
        """The next longer window; None for the longest."""
        return next((each for each in Window if each.span > self.span), None)


_UNITS = {
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "y": timedelta(days=365),
}


class Command(StrEnum):
    """Every command, in its normal form."""

    ASK = "/ask --depth=deep"
    EVENTS = "/events link"
    GRAPH = "/graph query"
    SUGGEST = "/memory suggest"
    STORE = "/memory store"
    RECALL = "/memory recall"
    SYNTHESIZE = "/synthesize"

    @property
    def is_memory(self) -> bool:
        """Whether this is a memory command, which needs no documents."""
        return self.value.startswith("/memory")


MODES: Mapping[str, Mapping[str, Command]] = MappingProxyType(
    {
        "/ask": {"": Command.ASK},
        "/events": {"": Command.EVENTS, "link": Command.EVENTS},
        "/graph": {"": Command.GRAPH, "query": Command.GRAPH},
        "/memory": {
            "": Command.RECALL,
            "suggest": Command.SUGGEST,
            "store": Command.STORE,
            "recall": Command.RECALL,
        },
        "/synthesize": {"": Command.SYNTHESIZE},
    }
)
"""The commands by name and by mode, the word after the name; the key `""` is the command without a mode."""


class ArgumentKey(StrEnum):
    """Keys of command arguments."""

    WINDOW = "window"
    LANG = "lang"
    SOURCES = "sources"
    DOMAINS = "domains"
    TOPIC = "topic"
    ENTITY = "entity"
    QUERY = "query"
    K = "k"
    HOPS = "hops"
    RERANK = "rerank"
    POLICY = "build_policy"
    DEPTH = "depth"


ALIASES: Mapping[str, ArgumentKey] = MappingProxyType(
    {
        **{key.value: key for key in ArgumentKey},
        "k_final": ArgumentKey.K,
        "source": ArgumentKey.SOURCES,
        "domain": ArgumentKey.DOMAINS,
        "hop": ArgumentKey.HOPS,
        "hop_limit": ArgumentKey.HOPS,
        "policy": ArgumentKey.POLICY,
        "окно": ArgumentKey.WINDOW,
        "период": ArgumentKey.WINDOW,
        "язык": ArgumentKey.LANG,
        "источник": ArgumentKey.SOURCES,
        "источники": ArgumentKey.SOURCES,
        "домен": ArgumentKey.DOMAINS,
        "домены": ArgumentKey.DOMAINS,
        "тема": ArgumentKey.TOPIC,
        "объект": ArgumentKey.ENTITY,
        "запрос": ArgumentKey.QUERY,
    }
)
"""Every spelling of a key, in lower case."""

WINDOWS: Mapping[str, str] = MappingProxyType({window.value: window.value for window in Window})
_YES = ("true", "yes", "on", "1", "да", "вкл")
_NO = ("false", "no", "off", "0", "нет", "выкл")

CLOSED_VALUES: Mapping[ArgumentKey, Mapping[str, str]] = MappingProxyType(
    {
        ArgumentKey.WINDOW: {
            **WINDOWS,
            **{f"{window.value[:-1]}{'чднмг'['hdwmy'.index(window.value[-1])]}": window.value for window in Window},
        },
        ArgumentKey.LANG: {
            **{name: name for name in ("ru", "en", "auto")},
            **dict.fromkeys(("русский", "рус", "russian"), "ru"),
            **dict.fromkeys(("английский", "англ", "english"), "en"),
            "авто": "auto",
        },
        ArgumentKey.RERANK: {**dict.fromkeys(_YES, "true"), **dict.fromkeys(_NO, "false")},
        ArgumentKey.POLICY: {"on_demand": "on_demand", "cached_only": "cached_only"},
        ArgumentKey.DEPTH: {"deep": "deep"},
    }
)
"""Keys whose value comes from a closed set: each spelling and what it means."""

BOUNDS: Mapping[ArgumentKey, tuple[int, int]] = MappingProxyType({ArgumentKey.K: (5, 10), ArgumentKey.HOPS: (1, 3)})
"""Keys whose value is a number, with the bounds that it is clamped to."""

LIST_KEYS = (ArgumentKey.SOURCES, ArgumentKey.DOMAINS)
RERANK_FLAGS: Mapping[str, str] = MappingProxyType(
    {"rerank": "true", **dict.fromkeys(("no-rerank", "no_rerank", "norerank"), "false")}
)

EXAMPLES: Mapping[ArgumentKey, str] = MappingProxyType(
    {
        ArgumentKey.WINDOW: "window=24h",
        ArgumentKey.LANG: "lang=ru",
        ArgumentKey.SOURCES: "sources=example.org,example.com",
        ArgumentKey.DOMAINS: "domains=example.org",
        ArgumentKey.TOPIC: 'topic="AI trends"',
        ArgumentKey.ENTITY: 'entity="OpenAI"',
        ArgumentKey.QUERY: 'query="machine learning"',
        ArgumentKey.K: "k=8",
        ArgumentKey.HOPS: "hops=2",
        ArgumentKey.RERANK: "rerank=false",
        ArgumentKey.POLICY: "build_policy=cached_only",
        ArgumentKey.DEPTH: "depth=deep",
    }
)
"""A valid form of each key, shown in error messages."""


_PLAIN_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedCommand:
    """A parsed command line; arguments that were not given are None or empty.

    `text` is the text outside all keys; when a `query` is given, it is part of `query` instead. `to_command_line`
    writes a command line that parses to the same command.
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

    def to_command_line(self) -> str:
        """The command in its normal form, which parses to the same command."""
        said = {
            ArgumentKey.WINDOW: self.window,
            ArgumentKey.LANG: self.lang,
            ArgumentKey.SOURCES: _format_list(self.sources),
            ArgumentKey.DOMAINS: _format_list(self.domains),
            ArgumentKey.TOPIC: _quote_optional(self.topic),
            ArgumentKey.ENTITY: _quote_optional(self.entity),
            ArgumentKey.QUERY: _quote_optional(self.query),
            ArgumentKey.K: self.k,
            ArgumentKey.HOPS: self.hops,
            ArgumentKey.RERANK: None if self.rerank is None else str(self.rerank).lower(),
            ArgumentKey.POLICY: self.policy,
        }
        parts = [f"{key}={value}" for key, value in said.items() if value is not None]
        return " ".join([self.command, *parts, *([_quote(self.text)] if self.text else [])])


def _format_list(names: tuple[str, ...]) -> str | None:
    if not names:
        return None
    plain = all(_PLAIN_NAME.fullmatch(name) for name in names)
    return ",".join(names) if plain else _quote(",".join(names))


def _quote_optional(text: str | None) -> str | None:
    return None if text is None else _quote(text)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
