"""The rules that every finished context keeps; each one gives a sentence when it is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

from contexture.builders.command.documents import LANGS
from contexture.builders.command.ladder import ENOUGH
from contexture.builders.command.params import FLOORS
from contexture.builders.command.snippets import LONGEST
from contexture.builders.command.words import BOUNDS, WINDOWS, Command, Key
from contexture.errors import InvalidRequest

Context = Mapping[str, Any]
Rule = Callable[[Context], Iterator[str]]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def check(context: Context, *, strict_k: bool = False) -> None:
    """Raise `InvalidRequest` with every rule that a context, as `to_dict` gives it, breaks.

    A command about memory needs no documents. Fewer than five are allowed unless `strict_k` says otherwise.
    """
    broken = [f"{name}: {said}" for name, rule in RULES.items() for said in rule(context)]
    count = len(context["retrieval"]["docs"])
    if strict_k and not _remembers(context) and count < ENOUGH:
        broken.append(f"k_final: {count} documents are fewer than {ENOUGH}")
    if broken:
        raise InvalidRequest("; ".join(broken))


def _remembers(context: Context) -> bool:
    return context["command"] in (command.value for command in Command if command.remembers)


def _command(context: Context) -> Iterator[str]:
    if context["command"] not in (command.value for command in Command):
        yield f"{context['command']!r} is not supported"


def _window(context: Context) -> Iterator[str]:
    for window in (context["params"]["window"], context["retrieval"]["window"]):
        if window not in WINDOWS:
            yield f"{window!r} is not one of {', '.join(WINDOWS)}"


def _docs(context: Context) -> Iterator[str]:
    if not context["retrieval"]["docs"] and not _remembers(context):
        yield "there are none"


def _k_final(context: Context) -> Iterator[str]:
    retrieval, (low, high) = context["retrieval"], BOUNDS[Key.K]
    if not low <= context["params"]["k_final"] <= high:
        yield f"{context['params']['k_final']} was asked for; it lies between {low} and {high}"
    if retrieval["k_final"] != len(retrieval["docs"]):
        yield f"{retrieval['k_final']} is not the number of documents, {len(retrieval['docs'])}"
    if retrieval["k_final"] > high:
        yield f"{retrieval['k_final']} is above {high}"


def _documents(context: Context) -> Iterator[str]:
    for at, doc in enumerate(context["retrieval"]["docs"]):
        if not doc["title"].strip():
            yield f"docs[{at}] has no title"
        if not _is_date(doc["date"]):
            yield f"docs[{at}] is dated {doc['date']!r} instead of YYYY-MM-DD"
        if doc["lang"] not in LANGS:
            yield f"docs[{at}] is in {doc['lang']!r} instead of {' or '.join(LANGS)}"
        if len(doc["snippet"]) > LONGEST:
            yield f"docs[{at}] has a snippet of {len(doc['snippet'])} characters; at most {LONGEST} are shown"


def _is_date(text: object) -> bool:
    if not isinstance(text, str) or not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _models(context: Context) -> Iterator[str]:
    if not context["models"].get("primary"):
        yield "no primary model"


def _limits(context: Context) -> Iterator[str]:
    for name, floor in FLOORS.items():
        if context["limits"][name] < floor:
            yield f"{name} is {context['limits'][name]}, below {floor}"


def _telemetry(context: Context) -> Iterator[str]:
    if not context["telemetry"].get("correlation_id"):
        yield "no correlation_id"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "command": _command,
        "window": _window,
        "docs": _docs,
        "k_final": _k_final,
        "documents": _documents,
        "models": _models,
        "limits": _limits,
        "telemetry": _telemetry,
    }
)
"""Every rule by the name under which it is reported."""
