"""The words of the command language: commands, keys and the values that a key may have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from contexture.builders.command.windows import Window


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
    def remembers(self) -> bool:
        """Whether it is about memory, and so needs no documents."""
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
"""The word after a command and what the two mean together; without one the command means what `""` says."""


class Key(StrEnum):
    """What an argument is about."""

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


ALIASES: Mapping[str, Key] = MappingProxyType(
    {
        **{key.value: key for key in Key},
        "k_final": Key.K,
        "source": Key.SOURCES,
        "domain": Key.DOMAINS,
        "hop": Key.HOPS,
        "hop_limit": Key.HOPS,
        "policy": Key.POLICY,
        "окно": Key.WINDOW,
        "период": Key.WINDOW,
        "язык": Key.LANG,
        "источник": Key.SOURCES,
        "источники": Key.SOURCES,
        "домен": Key.DOMAINS,
        "домены": Key.DOMAINS,
        "тема": Key.TOPIC,
        "объект": Key.ENTITY,
        "запрос": Key.QUERY,
    }
)
"""Every spelling of a key, in lower case."""

WINDOWS: Mapping[str, str] = MappingProxyType({window.value: window.value for window in Window})
_YES = ("true", "yes", "on", "1", "да", "вкл")
_NO = ("false", "no", "off", "0", "нет", "выкл")

CLOSED: Mapping[Key, Mapping[str, str]] = MappingProxyType(
    {
        Key.WINDOW: {
            **WINDOWS,
            **{f"{window.value[:-1]}{'чднмг'['hdwmy'.index(window.value[-1])]}": window.value for window in Window},
        },
        Key.LANG: {
            **{name: name for name in ("ru", "en", "auto")},
            **dict.fromkeys(("русский", "рус", "russian"), "ru"),
            **dict.fromkeys(("английский", "англ", "english"), "en"),
            "авто": "auto",
        },
        Key.RERANK: {**dict.fromkeys(_YES, "true"), **dict.fromkeys(_NO, "false")},
        Key.POLICY: {"on_demand": "on_demand", "cached_only": "cached_only"},
        Key.DEPTH: {"deep": "deep"},
    }
)
"""Keys whose value comes from a closed set: each spelling and what it means."""

BOUNDS: Mapping[Key, tuple[int, int]] = MappingProxyType({Key.K: (5, 10), Key.HOPS: (1, 3)})
"""Keys whose value is a number, and what it is clamped to."""

LISTS = (Key.SOURCES, Key.DOMAINS)
FLAGS: Mapping[str, str] = MappingProxyType(
    {"rerank": "true", **dict.fromkeys(("no-rerank", "no_rerank", "norerank"), "false")}
)

EXAMPLES: Mapping[Key, str] = MappingProxyType(
    {
        Key.WINDOW: "window=24h",
        Key.LANG: "lang=ru",
        Key.SOURCES: "sources=example.org,example.com",
        Key.DOMAINS: "domains=example.org",
        Key.TOPIC: 'topic="AI trends"',
        Key.ENTITY: 'entity="OpenAI"',
        Key.QUERY: 'query="machine learning"',
        Key.K: "k=8",
        Key.HOPS: "hops=2",
        Key.RERANK: "rerank=false",
        Key.POLICY: "build_policy=cached_only",
        Key.DEPTH: "depth=deep",
    }
)
"""A valid form of each key, shown where one was not understood."""
