"""Validation of a finished command context: each rule yields a sentence when it is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

from contexture.builders.command._render import DOCUMENT_LANGS, MAX_SNIPPET_CHARS
from contexture.builders.command.collect import MIN_DOCUMENTS
from contexture.builders.command.request import MIN_LIMITS
from contexture.builders.command.syntax import BOUNDS, WINDOWS, ArgumentKey, Command
from contexture.errors import InvalidRequest

Context = Mapping[str, Any]
Rule = Callable[[Context], Iterator[str]]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def check_context(context: Context, *, strict_k: bool = False) -> None:
    """Raise `InvalidRequest` listing every rule that a context, as `json_form` gives it, breaks.

    A memory command needs no documents. Fewer than five are allowed unless `strict_k`.
    """
    broken = [f"{name}: {said}" for name, rule in RULES.items() for said in rule(context)]
    count = len(context["retrieval"]["docs"])
    if strict_k and not _is_memory_command(context) and count < MIN_DOCUMENTS:
        broken.append(f"k_final: {count} documents are fewer than {MIN_DOCUMENTS}")
    if broken:
        raise InvalidRequest("; ".join(broken))


def _is_memory_command(context: Context) -> bool:
    return context["command"] in (command.value for command in Command if command.is_memory)


def _check_command(context: Context) -> Iterator[str]:
    if context["command"] not in (command.value for command in Command):
        yield f"{context['command']!r} is not supported"


def _check_window(context: Context) -> Iterator[str]:
    for window in (context["params"]["window"], context["retrieval"]["window"]):
        if window not in WINDOWS:
            yield f"{window!r} is not one of {', '.join(WINDOWS)}"


def _check_docs(context: Context) -> Iterator[str]:
    if not context["retrieval"]["docs"] and not _is_memory_command(context):
        yield "there are none"


def _check_k_final(context: Context) -> Iterator[str]:
    retrieval, (low, high) = context["retrieval"], BOUNDS[ArgumentKey.K]
    asked = context["params"]["k_final"]
    if not retrieval["docs"] and not low <= asked <= high:
        yield f"{asked} was asked for; it lies between {low} and {high}"
    if retrieval["docs"] and asked != len(retrieval["docs"]):
        yield f"`params` has {asked}, which is not the number of documents, {len(retrieval['docs'])}"
    if retrieval["k_final"] != len(retrieval["docs"]):
        yield f"{retrieval['k_final']} is not the number of documents, {len(retrieval['docs'])}"
    if retrieval["k_final"] > high:
        yield f"{retrieval['k_final']} is above {high}"


def _check_documents(context: Context) -> Iterator[str]:
    for at, doc in enumerate(context["retrieval"]["docs"]):
        if not doc["title"].strip():
            yield f"docs[{at}] has no title"
        if not _is_date(doc["date"]):
            yield f"docs[{at}] is dated {doc['date']!r} instead of YYYY-MM-DD"
        if doc["lang"] not in DOCUMENT_LANGS:
            yield f"docs[{at}] is in {doc['lang']!r} instead of {' or '.join(DOCUMENT_LANGS)}"
        if len(doc["snippet"]) > MAX_SNIPPET_CHARS:
            yield f"docs[{at}] has a snippet of {len(doc['snippet'])} characters; at most {MAX_SNIPPET_CHARS} are shown"


def _is_date(text: object) -> bool:
    if not isinstance(text, str) or not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_models(context: Context) -> Iterator[str]:
    if not context["models"].get("primary"):
        yield "no primary model"


def _check_limits(context: Context) -> Iterator[str]:
    for name, floor in MIN_LIMITS.items():
        if context["limits"][name] < floor:
            yield f"{name} is {context['limits'][name]}, below {floor}"


def _check_telemetry(context: Context) -> Iterator[str]:
    if not context["telemetry"].get("correlation_id"):
        yield "no correlation_id"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "command": _check_command,
        "window": _check_window,
        "docs": _check_docs,
        "k_final": _check_k_final,
        "documents": _check_documents,
        "models": _check_models,
        "limits": _check_limits,
        "telemetry": _check_telemetry,
    }
)
"""Every rule by the name under which it is reported."""
