"""Memories as the JSON that memory services speak, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import msgspec

from contexture.adapters.memory.sound import sound
from contexture.conversation import Feedback, Memory, MemoryKind, Piece, Recall, Recalled
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.types import Scope

TIMES = ("timestamp", "created_at")
_PLAIN = ("text", "id", "type", "namespace", "universe", "session_id", "persona_id", "importance", "ttl_seconds")
_LISTS = ("tags", "readers", "injected")
_KNOWN = frozenset({*_PLAIN, *_LISTS, *TIMES, "kind", "idempotency_key", "metadata", "tenant_id", "user_id"})
_ASKED = ("query", "top_k", "threshold", "session_id", "persona_id", "namespace", "universe")
_FILTERS = ("sessions", "personas", "tags", "kinds")
_SHOWN = 200

T = TypeVar("T")


# --- what is sent ---


def asker(scope: Scope) -> dict[str, str]:
    """Who asks, as every payload says it."""
    return {"tenant_id": scope.tenant, "user_id": scope.user}


def memory_json(memory: Memory) -> dict[str, Any]:
    """A memory as an item of a batch; what is empty is left out, but for the text and the namespace."""
    found = {name: getattr(memory, name) for name in (*_PLAIN, "idempotency_key", "metadata")}
    lists = {name: list(getattr(memory, name)) for name in _LISTS}
    time = {"timestamp": memory.time.isoformat()} if memory.time else {}
    said = {**found, **lists, "kind": str(memory.kind), **time}
    kept = {name: value for name, value in said.items() if value is not None and value not in ("", [], {})}
    return {"text": memory.text, "namespace": memory.namespace, **kept}


def recall_json(scope: Scope, query: Recall) -> dict[str, Any]:
    """A question; what does not bind is left out."""
    hints = {"session_id": query.session_id, "persona_id": query.persona_id, "universe": query.universe}
    optional = {**hints, **{name: [str(each) for each in getattr(query, name)] for name in _FILTERS}}
    return {
        **asker(scope),
        "query": query.query,
        "top_k": query.top_k,
        "threshold": query.threshold,
        "namespace": query.namespace,
        **{name: value for name, value in optional.items() if value},
    }


def recalled_json(found: Recalled) -> dict[str, Any]:
    """A memory that was found, as an answer holds it."""
    return {
        "id": found.id,
        "score": found.score,
        "text": found.text,
        "metadata": dict(found.metadata),
        "label": found.label,
        "kind": str(found.kind),
        "type": found.type,
        "lang": found.lang,
        "hash": found.hash,
        "signals": dict(found.signals),
        "pieces": [{"start": piece.start, "end": piece.end, "score": piece.score} for piece in found.pieces],
    }


def answer_json(found: Sequence[Recalled]) -> dict[str, Any]:
    """The answer to a question: the memories, under both names that clients look for."""
    items = [recalled_json(each) for each in found]
    return {"candidates": items, "results": items}


def feedback_json(scope: Scope, given: Feedback) -> dict[str, Any]:
    """How useful a memory was."""
    optional = {"session_id": given.session_id, "query": given.query}
    return {
        **asker(scope),
        "memory_id": given.memory_id,
        "score": given.score,
        "timestamp": given.time.isoformat(),
        **{name: value for name, value in optional.items() if value},
    }


# --- what is asked of us ---


def memory_from(payload: Mapping[str, Any], *, namespace: str = "wm", universe: str = "") -> Memory:
    """The memory an item describes; fields that nobody knows become metadata, which the item's own wins over."""
    extra = {name: value for name, value in payload.items() if name not in _KNOWN}
    metadata = {**extra, **_mapping(payload, "metadata")}
    given = _given(payload, (*_PLAIN, *_LISTS, "kind", "idempotency_key"))
    kept = {name: value for name, value in metadata.items() if name not in TIMES}
    found = _converted({"namespace": namespace, "universe": universe, **given, "metadata": kept}, Memory)
    return replace(found, time=time_in(payload) or time_in(metadata))


def recall_from(
    payload: Mapping[str, Any], *, now: datetime, namespace: str = "wm", universe: str = "", threshold: float = 0.5
) -> Recall:
    """The question a payload asks; what it leaves out has these defaults."""
    given = _given(payload, (*_ASKED, *_FILTERS))
    defaults = {"namespace": namespace, "universe": universe, "threshold": threshold}
    return _converted({**defaults, **given, "now": now}, Recall)


def time_in(payload: Mapping[str, Any]) -> datetime | None:
    """The time a payload gives, in UTC; one that cannot be read counts as missing."""
    for name in TIMES:
        value = payload.get(name)
        if isinstance(value, datetime):
            return value.replace(tzinfo=value.tzinfo or UTC)
        try:
            found = datetime.fromisoformat(value) if isinstance(value, str) else None
            if found is not None:
                return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            continue
    return None


def _given(payload: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: payload[name] for name in names if payload.get(name) is not None}


def _mapping(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: object = payload.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidRequest(f"`{name}` must be an object, not {found!r}")
    return cast("Mapping[str, Any]", found)


def _converted(fields: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"{kind.__name__.lower()}: {failure}") from failure


# --- what a service answers ---


def answer_from(answer: object, query: Recall) -> tuple[Recalled, ...]:
    """The memories in an answer, best first, held to the threshold and the number asked for.

    `candidates` or `results` is read. Anything that is not what it should be makes the whole answer a failure
    of the service: half an answer looks like a whole one.
    """
    named = (_member(answer, name) for name in ("candidates", "results"))
    items = next((found for found in named if found is not None), None)
    if items is None:
        raise broken("neither `candidates` nor `results` is a list")
    try:
        found = {each.id: each for each in map(_recalled, map(sound, items))}
    except RecursionError as failure:
        raise broken("it is nested too deeply") from failure
    best = sorted(found.values(), key=lambda each: (-each.score, each.id))
    return tuple(each for each in best if each.score >= query.threshold)[: query.top_k]


def ids_from(answer: object, memories: Sequence[Memory]) -> tuple[str, ...]:
    """The ids in the answer to a batch; a service that only says `ok` has kept those it was given."""
    ids = _member(answer, "ids")
    known = tuple(memory.id for memory in memories)
    if ids is None and all(known) and isinstance(answer, dict) and cast("dict[str, Any]", answer).get("ok") is True:
        return known
    if ids is None or len(ids) != len(memories) or not all(isinstance(each, str) and each for each in ids):
        raise broken(f"`ids` does not name {len(memories)} memories")
    return tuple(cast("list[str]", ids))


def broken(what: str) -> SourceUnavailable:
    """The failure of a service whose answer cannot be used, in words that are never long."""
    return SourceUnavailable(f"the memory service gave an answer that cannot be used: {what[:_SHOWN]}")


def _member(answer: object, name: str) -> list[object] | None:
    found = cast("dict[str, object]", answer).get(name) if isinstance(answer, dict) else None
    return cast("list[object]", found) if isinstance(found, list) else None


def _recalled(item: object) -> Recalled:
    if not isinstance(item, dict):
        raise broken(f"a memory is a {type(item).__name__}, not an object")
    fields = cast("dict[str, Any]", item)
    metadata: object = fields.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise broken("`metadata` is not an object")
    said = cast("dict[str, Any]", metadata)
    source = said.get("source")
    kind = fields.get("kind")
    return Recalled(
        id=_id(fields.get("id")),
        text=_text(fields.get("text")),
        score=_score(fields.get("score")),
        time=time_in(said) or time_in(fields),
        label=source if isinstance(source, str) else "",
        kind=MemoryKind(kind) if kind in list(MemoryKind) else MemoryKind.EPISODIC,
        type=_word(fields.get("type")) or "memory",
        metadata=said,
        signals=_signals(fields.get("signals")),
        pieces=_pieces(fields.get("pieces"), len(fields["text"])),
    )


def _id(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise broken(f"a memory has the id {value!r}")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise broken(f"`text` is a {type(value).__name__}, not a text")
    return value


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _score(value: object) -> float:
    number = _number(value)
    if number is None:
        raise broken(f"`score` is {value!r}, not a number")
    return min(1.0, max(0.0, number))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON knows whole numbers that are larger than any float
        return None
    return number if math.isfinite(number) else None


def _signals(value: object) -> dict[str, float]:
    items = cast("dict[str, object]", value).items() if isinstance(value, dict) else ()
    return {str(name): number for name, each in items if (number := _number(each)) is not None}


def _pieces(value: object, length: int) -> tuple[Piece, ...]:
    """The pieces that lie inside the text; others are of no use and do no harm."""
    found: list[Piece] = []
    for item in cast("list[object]", value) if isinstance(value, list) else ():
        piece = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        start, end, score = piece.get("start"), piece.get("end"), _number(piece.get("score"))
        if isinstance(start, int) and isinstance(end, int) and score is not None and 0 <= start < end <= length:
            found.append(Piece(start, end, min(1.0, max(0.0, score))))
    return tuple(found)
