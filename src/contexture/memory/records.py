"""A memory as a record of the index, and back."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import msgspec

from contexture.conversation import Memory, MemoryKind
from contexture.errors import InvalidRequest
from contexture.retrieval.prepare import valid
from contexture.types import Collection, FieldType, Record, Scope

MEMORIES = Collection(
    name="memories",
    fields={
        "namespace": FieldType.KEYWORD,
        "universe": FieldType.KEYWORD,
        "persona": FieldType.KEYWORD,
        "tags": FieldType.KEYWORD,
        "type": FieldType.KEYWORD,
        "importance": FieldType.NUMBER,
        "expires": FieldType.TIME,
    },
)
"""Where memories live, and what filters may name beside the fields that every record has."""

ALIAS = "alias"
"""Kind of the empty records that lead from an idempotency key to a memory with an id of its own."""

MOST_LEVELS = 32
"""How deep metadata may be nested: whoever reads it walks through all of it."""

_FOREVER = timedelta(days=36_500)
_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)


def record_of(memory: Memory, record_id: str, scope: Scope, now: datetime) -> Record:
    """The record of a memory that `scope` writes at `now`."""
    return Record(
        id=record_id,
        text=memory.text,
        acl=readers_of(memory, scope),
        kind=str(memory.kind),
        source=source_of(memory),
        time=memory.time or now,
        session=memory.session_id,
        position=_position(memory.metadata.get("position")),
        payload={
            "namespace": memory.namespace,
            "universe": memory.universe,
            "persona": memory.persona_id,
            "tags": list(memory.tags),
            "type": memory.type,
            "importance": memory.importance,
            "key": memory.idempotency_key,
            "metadata": dict(memory.metadata),
            **_expiry(memory.ttl_seconds, now),
        },
    )


def readers_of(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """Who may recall it: those it names, or only the user who writes it."""
    return memory.readers or (f"user:{scope.user}",)


def source_of(memory: Memory) -> str:
    """Where a memory says it came from; its type when it does not."""
    source = memory.metadata.get("source")
    return source if isinstance(source, str) and source else memory.type


def alias_of(memory: Memory, scope: Scope) -> str:
    """The id under which an idempotency key is known to those who may read the memory first written with it."""
    return key_id(scope.tenant, memory.namespace, memory.idempotency_key, _holders(memory, scope)[0])


def aliases_of(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """Every id under which a memory's idempotency key may be known already."""
    names = _holders(memory, scope)
    return tuple(key_id(scope.tenant, memory.namespace, memory.idempotency_key, name) for name in names)


def keys_of(record: Record, scope: Scope) -> set[str]:
    """Every id under which the idempotency key of a stored memory may be known."""
    namespace, key = record.payload["namespace"], record.payload["key"]
    return {key_id(scope.tenant, namespace, key, name) for name in (*record.acl, *scope.principals)}


def _holders(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """Whose key it is: the readers that the writer is one of, and the writer.

    Nobody else's: who writes for others alone learns nothing of their keys and takes none of them.
    """
    shared = [name for name in readers_of(memory, scope) if name in scope.principals]
    return tuple(dict.fromkeys((*shared, f"user:{scope.user}")))


def alias_record(alias: str, record: Record) -> Record:
    """An empty record that says which memory an idempotency key stands for."""
    kept = {name: record.payload[name] for name in ("namespace", "universe", "expires") if name in record.payload}
    return Record(id=alias, text="", acl=record.acl, kind=ALIAS, payload={**kept, "of": record.id})


def key_id(tenant: str, namespace: str, key: str, principal: str) -> str:
    """The same id for the same key; the principal keeps the keys of people who cannot see each other apart."""
    parts = msgspec.json.encode((tenant, namespace, key, principal))
    return f"mem-{hashlib.sha256(parts).hexdigest()[:32]}"


def new_id() -> str:
    """An id that nobody has."""
    return f"mem-{uuid4().hex}"


def alive(record: Record, now: datetime) -> bool:
    """Whether a record has not expired at `now`."""
    expires = record.payload.get("expires")
    return not isinstance(expires, str) or datetime.fromisoformat(expires) > aware(now)


def aware(time: datetime) -> datetime:
    """The time in its zone, or in UTC when it has none."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def kind_of(record: Record) -> MemoryKind:
    """What sort of memory a record holds."""
    return MemoryKind(record.kind) if record.kind in list(MemoryKind) else MemoryKind.EPISODIC


def metadata_of(record: Record) -> Mapping[str, Any]:
    """What a reader is told about a memory: what its writer said, and what the service knows, which wins."""
    known = {
        "source": record.source,
        "timestamp": record.time.isoformat() if record.time else None,
        "session_id": record.session,
        "persona_id": record.payload.get("persona"),
        "tags": record.payload.get("tags"),
    }
    return {**record.payload.get("metadata", {}), **{name: value for name, value in known.items() if value}}


def check(memories: Sequence[Memory]) -> None:
    """Refuse what cannot be remembered, naming its place in the batch and the field."""
    for at, memory in enumerate(memories):
        problem = _problem(memory)
        if problem:
            raise InvalidRequest(f"memories[{at}]: {problem}")


def _problem(memory: Memory) -> str:
    if not memory.text.strip():
        return "`text` is empty"
    if not memory.namespace:
        return "`namespace` is empty"
    names = {"id": memory.id, "namespace": memory.namespace, "idempotency_key": memory.idempotency_key}
    broken = next((name for name, value in names.items() if not valid(value)), None)
    if broken:
        return f"`{broken}` is not valid Unicode"
    strange = next((name for name in memory.readers if not _PRINCIPAL.fullmatch(name)), None)
    if strange is not None:
        return f"`readers` may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"
    if not 0 <= memory.importance <= 1:
        return f"`importance` must lie between 0 and 1, not {memory.importance!r}"
    if memory.ttl_seconds is not None and not (memory.ttl_seconds > 0 and math.isfinite(memory.ttl_seconds)):
        return f"`ttl_seconds` must be a positive number, not {memory.ttl_seconds!r}"
    return f"`metadata` may be nested {MOST_LEVELS} levels deep" if _deeper(memory.metadata, MOST_LEVELS) else ""


def _deeper(value: object, levels: int) -> bool:
    """Whether objects and lists are nested deeper than this; read level by level, because they may be very deep."""
    level = [value]
    for _ in range(levels):
        level = [inner for each in level for inner in _inside(each)]
    return any(isinstance(each, Mapping | list | tuple) for each in level)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).values()
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _expiry(ttl: float | None, now: datetime) -> Mapping[str, str]:
    if ttl is None or ttl >= _FOREVER.total_seconds():
        return {}
    return {"expires": (aware(now) + timedelta(seconds=ttl)).isoformat()}


def _position(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
