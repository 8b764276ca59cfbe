"""Converts memories to and from the JSON of memory services. Lone surrogates in answers are replaced."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import msgspec
from typing_extensions import TypedDict

from contexture.conversation import Feedback, Memory, MemoryKind, MemoryPiece, Recall, Recalled, newer_first
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.results import FreeJson
from contexture.text.unicode import repair_text
from contexture.types import Scope, content_hash

TIME_FIELDS = ("timestamp", "created_at")
_PLAIN_FIELDS = ("text", "id", "type", "namespace", "universe", "session_id", "persona_id", "importance", "ttl_seconds")
_LIST_FIELDS = ("tags", "readers", "injected")
_KNOWN_FIELDS = frozenset(
    {*_PLAIN_FIELDS, *_LIST_FIELDS, *TIME_FIELDS, "kind", "idempotency_key", "metadata", "tenant_id", "user_id"}
)
_RECALL_FIELDS = ("query", "top_k", "threshold", "session_id", "persona_id", "namespace", "universe")
_RECALL_FILTERS = ("sessions", "personas", "tags", "kinds")
_MAX_ERROR_CHARS = 200
_MAX_UNCLIPPED = 256  # memories of an answer that are ranked again

T = TypeVar("T")


# --- requests to a service ---
def scope_to_json(scope: Scope) -> dict[str, str]:
    """Tenant and user fields of every payload."""
    return {"tenant_id": scope.tenant, "user_id": scope.user}


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """Memory as an item of a batch; empty fields are left out, except text and namespace."""
    found = {name: getattr(memory, name) for name in (*_PLAIN_FIELDS, "idempotency_key", "metadata")}
    lists = {name: list(getattr(memory, name)) for name in _LIST_FIELDS}
    time = {"timestamp": memory.time.isoformat()} if memory.time else {}
    said = {**found, **lists, "kind": str(memory.kind), **time}
    kept = {name: value for name, value in said.items() if value is not None and value not in ("", [], {})}
    return {"text": memory.text, "namespace": memory.namespace, **kept}


def recall_to_json(scope: Scope, query: Recall) -> dict[str, Any]:
    """Recall query as JSON; empty hints and filters are left out."""
    hints = {"session_id": query.session_id, "persona_id": query.persona_id, "universe": query.universe}
    optional = {**hints, **{name: [str(each) for each in getattr(query, name)] for name in _RECALL_FILTERS}}
    return {
        **scope_to_json(scope),
        "query": query.query,
        "top_k": query.top_k,
        "threshold": query.threshold,
        "namespace": query.namespace,
        **{name: value for name, value in optional.items() if value},
    }


class MemoryPieceJson(TypedDict):
    """A passage of a memory, characters `start` to `end`, and how well it matches the query."""

    start: int
    end: int
    score: float


class RecalledJson(TypedDict):
    """A recalled memory; `pieces` are its passages that match, best first."""

    id: str
    score: float
    text: str
    metadata: FreeJson
    label: str
    kind: MemoryKind
    type: str
    lang: str
    hash: str
    signals: Mapping[str, float]
    pieces: list[MemoryPieceJson]


class RecallAnswerJson(TypedDict):
    """Recalled memories, best first; `candidates` and `results` are equal."""

    candidates: list[RecalledJson]
    results: list[RecalledJson]


def recalled_to_json(found: Recalled) -> RecalledJson:
    """Recalled memory as an item of an answer."""
    return {
        "id": found.id,
        "score": found.score,
        "text": found.text,
        "metadata": dict(found.metadata),
        "label": found.label,
        "kind": found.kind,
        "type": found.type,
        "lang": found.lang,
        "hash": found.hash,
        "signals": dict(found.signals),
        "pieces": [{"start": piece.start, "end": piece.end, "score": piece.score} for piece in found.pieces],
    }


def recall_answer_to_json(found: Sequence[Recalled]) -> RecallAnswerJson:
    """Answer to a recall query: the memories under both names that clients read."""
    items = [recalled_to_json(each) for each in found]
    return {"candidates": items, "results": items}


def feedback_to_json(scope: Scope, given: Feedback) -> dict[str, Any]:
    """Feedback on a memory as JSON."""
    optional = {"session_id": given.session_id, "query": given.query}
    return {
        **scope_to_json(scope),
        "memory_id": given.memory_id,
        "score": given.score,
        "timestamp": given.time.isoformat(),
        **{name: value for name, value in optional.items() if value},
    }


# --- requests to us ---
def rename_memory_fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A memory with our field names, from one that may use those of other clients.

    `value` is the text, or an object with `text` or `content` whose other fields are those of the memory or metadata;
    `content` is the text, `key` the id, `tenant` the tenant. Our own names win.
    """
    value = payload.get("value")
    inner = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {"text": value}
    if not inner.get("text"):
        inner["text"] = inner.pop("content", None)
    outer = {name: each for name, each in payload.items() if name not in {"value", "content", "key", "tenant"}}
    renamed = {"text": payload.get("content"), "id": payload.get("key"), "tenant_id": payload.get("tenant")}
    found: dict[str, Any] = {}
    for fields in (inner, renamed, outer):
        found.update({name: each for name, each in fields.items() if each is not None})
    return found


def rename_recall_fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A recall with our field names: `min_score` is the threshold, `tenant` the tenant."""
    renamed = {"threshold": payload.get("min_score"), "tenant_id": payload.get("tenant")}
    own = {name: each for name, each in payload.items() if name not in {"min_score", "tenant"}}
    return {**{name: each for name, each in renamed.items() if each is not None}, **own}


def memory_from_json(payload: Mapping[str, Any], *, namespace: str = "wm", universe: str = "") -> Memory:
    """Memory from an item of a batch; unknown fields become metadata, where the item's own metadata takes precedence.

    Raises `InvalidRequest` for a field of the wrong type.
    """
    extra = {name: value for name, value in payload.items() if name not in _KNOWN_FIELDS}
    metadata = {**extra, **_mapping(payload, "metadata")}
    given = _present_fields(payload, (*_PLAIN_FIELDS, *_LIST_FIELDS, "kind", "idempotency_key"))
    kept = {name: value for name, value in metadata.items() if name not in TIME_FIELDS}
    found = _convert({"namespace": namespace, "universe": universe, **given, "metadata": kept}, Memory)
    return replace(found, time=read_time(payload) or read_time(metadata))


def recall_from_json(
    payload: Mapping[str, Any], *, now: datetime, namespace: str = "wm", universe: str = "", threshold: float = 0.5
) -> Recall:
    """Recall query from a payload, with these defaults; raises `InvalidRequest` for a field of the wrong type."""
    given = _present_fields(payload, (*_RECALL_FIELDS, *_RECALL_FILTERS))
    defaults = {"namespace": namespace, "universe": universe, "threshold": threshold}
    return _convert({**defaults, **given, "now": now}, Recall)


def read_time(payload: Mapping[str, Any]) -> datetime | None:
    """Time of a payload in UTC; None if it is missing or cannot be parsed."""
    for name in TIME_FIELDS:
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


def _present_fields(payload: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: payload[name] for name in names if payload.get(name) is not None}


def _mapping(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: object = payload.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidRequest(f"`{name}` must be an object, not {found!r}")
    return cast("Mapping[str, Any]", found)


def _convert(fields: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"{kind.__name__.lower()}: {failure}") from failure


# --- answers of a service ---
def recall_answer_from_json(
    answer: object, query: Recall, on_invalid: Callable[[str], None] = lambda _: None
) -> tuple[Recalled, ...]:
    """Memories in an answer, best first, at or above the threshold and at most `top_k`.

    Reads `candidates` or `results`; an unclipped query accepts more of them. An invalid item is skipped and passed to
    `on_invalid` as a sentence; an answer with nothing but invalid items raises `SourceUnavailable`.
    """
    named = (_list_member(answer, name) for name in ("candidates", "results"))
    items = next((found for found in named if found is not None), None)
    if items is None:
        raise invalid_answer_error("neither `candidates` nor `results` is a list")
    found: dict[str, Recalled] = {}
    for at, item in enumerate(items):
        try:
            memory = _parse_recalled(repair_texts(item), at)
        except RecursionError as failure:
            raise invalid_answer_error("it is nested too deeply") from failure
        except SourceUnavailable as failure:
            if len(items) == 1 or (not found and at == len(items) - 1):
                raise
            on_invalid(str(failure))
            continue
        found[memory.id] = memory
    best = sorted(found.values(), key=lambda each: newer_first(each.score, each.time, each.id))
    most = _MAX_UNCLIPPED if query.unclipped else query.top_k
    return tuple(each for each in best if each.score >= query.threshold)[:most]


def ids_from_json(answer: object, memories: Sequence[Memory]) -> tuple[str, ...]:
    """Ids in the answer to a batch; if the service only answers `ok`, the ids that were sent.

    Raises `SourceUnavailable` if the ids do not match the memories.
    """
    ids = _list_member(answer, "ids")
    known = tuple(memory.id for memory in memories)
    if ids is None and all(known) and isinstance(answer, dict) and cast("dict[str, Any]", answer).get("ok") is True:
        return known
    if ids is None or len(ids) != len(memories) or not all(isinstance(each, str) and each for each in ids):
        raise invalid_answer_error(f"`ids` does not name {len(memories)} memories")
    return tuple(cast("list[str]", ids))


def invalid_answer_error(what: str) -> SourceUnavailable:
    """Error for an unusable answer of a service, with a message of limited length."""
    return SourceUnavailable(f"the memory service returned an invalid answer: {what[:_MAX_ERROR_CHARS]}")


def _list_member(answer: object, name: str) -> list[object] | None:
    found = cast("dict[str, object]", answer).get(name) if isinstance(answer, dict) else None
    return cast("list[object]", found) if isinstance(found, list) else None


def _parse_recalled(item: object, at: int) -> Recalled:
    """One item of an answer, its fields at the top or inside `payload`; without an id it gets one from its text."""
    if not isinstance(item, dict):
        raise invalid_answer_error(f"a memory is a {type(item).__name__}, not an object")
    given = cast("dict[str, Any]", item)
    inside: object = given.get("payload")
    fields = rename_memory_fields({**(cast("dict[str, Any]", inside) if isinstance(inside, dict) else {}), **given})
    metadata: object = fields.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise invalid_answer_error("`metadata` is not an object")
    said = cast("dict[str, Any]", metadata)
    source = said.get("source")
    kind = fields.get("kind")
    return Recalled(
        id=_parse_id(fields["id"]) if "id" in fields else f"item-{at}-{content_hash(str(fields.get('text')))[:16]}",
        text=_parse_text(fields.get("text")),
        score=_parse_score(fields.get("score")),
        time=read_time(said) or read_time(fields),
        label=source if isinstance(source, str) else "",
        kind=MemoryKind(kind) if kind in list(MemoryKind) else MemoryKind.EPISODIC,
        type=_text_or_empty(fields.get("type")) or "memory",
        metadata=said,
        signals=_parse_signals(fields.get("signals")),
        pieces=_parse_pieces(fields.get("pieces"), len(fields["text"])),
    )


def _parse_id(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise invalid_answer_error(f"a memory has the id {value!r}")
    return str(value)


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise invalid_answer_error(f"`text` is a {type(value).__name__}, not a string")
    return value


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def _parse_score(value: object) -> float:
    number = _finite_number(_read_number(value) if isinstance(value, str) else value)
    if number is None:
        raise invalid_answer_error(f"`score` is {value!r}, not a number")
    return min(1.0, max(0.0, number))


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _finite_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON allows integers larger than any float
        return None
    return number if math.isfinite(number) else None


def _parse_signals(value: object) -> dict[str, float]:
    items = cast("dict[str, object]", value).items() if isinstance(value, dict) else ()
    return {str(name): number for name, each in items if (number := _finite_number(each)) is not None}


def _parse_pieces(value: object, length: int) -> tuple[MemoryPiece, ...]:
    """Pieces that lie inside the text; invalid ones are ignored."""
    found: list[MemoryPiece] = []
    for item in cast("list[object]", value) if isinstance(value, list) else ():
        piece = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        start, end, score = piece.get("start"), piece.get("end"), _finite_number(piece.get("score"))
        if isinstance(start, int) and isinstance(end, int) and score is not None and 0 <= start < end <= length:
            found.append(MemoryPiece(start, end, min(1.0, max(0.0, score))))
    return tuple(found)


def repair_texts(value: object) -> object:
    """Join surrogate pairs and replace lone surrogates by U+FFFD in every string and key of a JSON value."""
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, Mapping):
        held = cast("Mapping[object, object]", value)
        return {repair_texts(name): repair_texts(inner) for name, inner in held.items()}
    if isinstance(value, list):
        return [repair_texts(inner) for inner in cast("list[object]", value)]
    return value
