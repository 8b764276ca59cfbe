"""Maps memories to index records and back, and validates them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import msgspec

from contexture.conversation import MEMORIES_COLLECTION, Memory, MemoryKind
from contexture.errors import InvalidRequest
from contexture.text.unicode import is_valid_unicode
from contexture.types import Collection, FieldType, Record, Scope

MEMORIES = Collection(
    name=MEMORIES_COLLECTION,
    fields={
        "namespace": FieldType.KEYWORD,
        "universe": FieldType.KEYWORD,
        "persona": FieldType.KEYWORD,
        "tags": FieldType.KEYWORD,
        "type": FieldType.KEYWORD,
        "importance": FieldType.NUMBER,
        "turn": FieldType.NUMBER,
        "expires": FieldType.TIME,
    },
)
"""The collection of memories, with its filter fields in addition to those that every record has."""

POSITION, TURN = "position", "turn"
"""Where a memory stands in its session: the position of a message in a dialogue, or the turn of a chat."""

ALIAS_KIND = "alias"
"""Kind of the empty records that map an idempotency key to a memory with an explicit id."""

MAX_METADATA_DEPTH = 32
"""Maximum nesting depth of metadata, limited because readers traverse all of it."""

_MAX_TTL = timedelta(days=36_500)
_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)


def memory_to_record(memory: Memory, record_id: str, scope: Scope, now: datetime) -> Record:
    """The record of a memory that `scope` writes at `now`."""
    return Record(
        id=record_id,
        text=memory.text,
        acl=memory_readers(memory, scope),
        kind=str(memory.kind),
        source=memory_source(memory),
        time=memory.time or now,
        session=memory.session_id,
        position=_int_or_none(memory.metadata.get("position")),
        payload={
            "namespace": memory.namespace,
            "universe": memory.universe,
            "persona": memory.persona_id,
            "tags": list(memory.tags),
            "type": memory.type,
            "importance": memory.importance,
            "key": memory.idempotency_key,
            "metadata": dict(memory.metadata),
            **_turn(memory.metadata.get(TURN)),
            **_expiry(memory.ttl_seconds, now),
        },
    )


def find_place(record: Record, field: str) -> tuple[str, int]:
    """The session of a memory and its place there, by position or turn; an empty session if it has none."""
    at = record.position if field == POSITION else _int_or_none(record.payload.get(TURN))
    return ("", 0) if at is None else (record.session, at)


def memory_readers(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """Who may recall a memory: the readers it names, or the user who writes it."""
    return memory.readers or (f"user:{scope.user}",)


def memory_source(memory: Memory) -> str:
    """The `source` in a memory's metadata; its type when there is none."""
    source = memory.metadata.get("source")
    return source if isinstance(source, str) and source else memory.type


def primary_alias_id(memory: Memory, scope: Scope) -> str:
    """The id under which a new memory's idempotency key is stored: that of the first owner of the key."""
    return make_key_id(scope.tenant, memory.namespace, memory.idempotency_key, _key_owners(memory, scope)[0])


def alias_ids(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """Every id under which a memory's idempotency key may already be stored."""
    names = _key_owners(memory, scope)
    return tuple(make_key_id(scope.tenant, memory.namespace, memory.idempotency_key, name) for name in names)


def stored_alias_ids(record: Record, scope: Scope) -> set[str]:
    """Every id under which the idempotency key of a stored memory may be stored."""
    namespace, key = record.payload["namespace"], record.payload["key"]
    return {make_key_id(scope.tenant, namespace, key, name) for name in (*record.acl, *scope.principals)}


def _key_owners(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """The principals that own an idempotency key: the readers that include the writer, and the writer.

    Other readers are left out, so that writing for others neither reveals nor occupies their keys.
    """
    shared = [name for name in memory_readers(memory, scope) if name in scope.principals]
    return tuple(dict.fromkeys((*shared, f"user:{scope.user}")))


def make_alias_record(alias: str, record: Record) -> Record:
    """An empty record that maps an idempotency key to the memory `record`."""
    kept = {name: record.payload[name] for name in ("namespace", "universe", "expires") if name in record.payload}
    return Record(id=alias, text="", acl=record.acl, kind=ALIAS_KIND, payload={**kept, "of": record.id})


def make_key_id(tenant: str, namespace: str, key: str, principal: str) -> str:
    """A deterministic id of an idempotency key; the principal separates equal keys of users who share no access."""
    parts = msgspec.json.encode((tenant, namespace, key, principal))
    return f"mem-{hashlib.sha256(parts).hexdigest()[:32]}"


def make_memory_id() -> str:
    """A new random id."""
    return f"mem-{uuid4().hex}"


def is_alive(record: Record, now: datetime) -> bool:
    """Whether a record has not expired at `now`."""
    expires = record.payload.get("expires")
    return not isinstance(expires, str) or datetime.fromisoformat(expires) > assume_utc(now)


def assume_utc(time: datetime) -> datetime:
    """The time, in UTC when it has no zone."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def memory_kind(record: Record) -> MemoryKind:
    """The kind of memory in a record; `EPISODIC` when it is unknown."""
    return MemoryKind(record.kind) if record.kind in list(MemoryKind) else MemoryKind.EPISODIC


def memory_metadata(record: Record) -> Mapping[str, Any]:
    """The metadata shown to a reader: the writer's metadata, overridden by what the service knows."""
    known = {
        "source": record.source,
        "timestamp": record.time.isoformat() if record.time else None,
        "session_id": record.session,
        "persona_id": record.payload.get("persona"),
        "tags": record.payload.get("tags"),
    }
    return {**record.payload.get("metadata", {}), **{name: value for name, value in known.items() if value}}


def check_memories(memories: Sequence[Memory]) -> None:
    """Raise `InvalidRequest` for a memory that cannot be stored, naming its position and field."""
    for at, memory in enumerate(memories):
        problem = _find_problem(memory)
        if problem:
            raise InvalidRequest(f"memories[{at}]: {problem}")


def _find_problem(memory: Memory) -> str:
    if not memory.text.strip():
        return "`text` is empty"
    if not memory.namespace:
        return "`namespace` is empty"
    names = {"id": memory.id, "namespace": memory.namespace, "idempotency_key": memory.idempotency_key}
    broken = next((name for name, value in names.items() if not is_valid_unicode(value)), None)
    if broken:
        return f"`{broken}` is not valid Unicode"
    strange = next((name for name in memory.readers if not _PRINCIPAL.fullmatch(name)), None)
    if strange is not None:
        return f"`readers` may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"
    if not 0 <= memory.importance <= 1:
        return f"`importance` must lie between 0 and 1, not {memory.importance!r}"
    if memory.ttl_seconds is not None and not (memory.ttl_seconds > 0 and math.isfinite(memory.ttl_seconds)):
        return f"`ttl_seconds` must be a positive number, not {memory.ttl_seconds!r}"
    return (
        f"`metadata` may be nested {MAX_METADATA_DEPTH} levels deep"
        if _is_nested_deeper(memory.metadata, MAX_METADATA_DEPTH)
        else ""
    )


def _is_nested_deeper(value: object, levels: int) -> bool:
    """Whether objects and lists are nested deeper than this; iterative, because recursion could overflow the stack."""
    level = [value]
    for _ in range(levels):
        level = [inner for each in level for inner in _child_values(each)]
    return any(isinstance(each, Mapping | list | tuple) for each in level)


def _child_values(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).values()
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _turn(value: object) -> Mapping[str, int]:
    number = _int_or_none(value)
    return {} if number is None else {TURN: number}


def _expiry(ttl: float | None, now: datetime) -> Mapping[str, str]:
    if ttl is None or ttl >= _MAX_TTL.total_seconds():
        return {}
    return {"expires": (assume_utc(now) + timedelta(seconds=ttl)).isoformat()}


def _int_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
