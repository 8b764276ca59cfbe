"""Maps memories to index records and back, validates them, and plans the writes of a batch.

A memory with a known idempotency key, or one that only echoes the memories in its prompt, is not stored again.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from contexture.conversation import MEMORIES_COLLECTION, Memory, MemoryKind
from contexture.errors import InvalidRequest
from contexture.text.terms import split_words, term_id
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


_COMPUTED_FIELDS = ("facts", "feedback", "expires")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryWritePlan:
    """The id of every memory of a batch, in order, and the records to write for it."""

    ids: tuple[str, ...]
    fresh: tuple[Record, ...]


def required_ids(memories: Sequence[Memory], scope: Scope) -> list[str]:
    """The ids of all records on which the plan for a batch depends."""
    ids: dict[str, None] = {}
    for memory in memories:
        keys = alias_ids(memory, scope) if memory.idempotency_key else ()
        ids.update(dict.fromkeys((*keys, *memory.injected, *([memory.id] if memory.id else ()))))
    return list(ids)


def plan_writes(
    memories: Sequence[Memory], scope: Scope, stored: Mapping[str, Record], now: datetime
) -> MemoryWritePlan:
    """The write plan of a batch; `stored` are the `required_ids` records that exist and that the scope may read.

    A memory whose idempotency key is known, or that only repeats a memory it was shown, is not new: it gets
    the id of the stored memory.
    """
    known = dict(stored)
    fresh: dict[str, Record] = {}
    ids: list[str] = []
    for memory in memories:
        found = _find_by_key(memory, scope, known) or _find_repeated(memory, known)
        if found is None:
            added = _new_records(memory, scope, known, now)
            fresh.update(added)
            known.update(added)
            found = memory.id or next(iter(added))
        ids.append(found)
    return MemoryWritePlan(ids=tuple(ids), fresh=tuple(fresh.values()))


def _find_by_key(memory: Memory, scope: Scope, known: Mapping[str, Record]) -> str | None:
    if not memory.idempotency_key:
        return None
    found = next((known[alias] for alias in alias_ids(memory, scope) if alias in known), None)
    return None if found is None else found.payload.get("of", found.id)


def _find_repeated(memory: Memory, known: Mapping[str, Record]) -> str | None:
    shown = [known[each] for each in memory.injected if each in known]
    return find_echo(memory.text, shown) if shown else None


def _new_records(memory: Memory, scope: Scope, known: Mapping[str, Record], now: datetime) -> dict[str, Record]:
    """The record of a new memory, and an alias for its idempotency key if the memory has an explicit id.

    Empty when an equal memory is already stored; feedback is kept when a memory is replaced.
    """
    alias = primary_alias_id(memory, scope) if memory.idempotency_key else ""
    record = memory_to_record(memory, memory.id or alias or make_memory_id(), scope, now)
    stored = known.get(record.id)
    if stored is not None and _is_unchanged(memory, stored, record):
        return {}
    if stored is not None and "feedback" in stored.payload:
        record = replace(record, payload={**record.payload, "feedback": stored.payload["feedback"]})
    aliases = {alias: make_alias_record(alias, record)} if alias and alias != record.id else {}
    return {record.id: record, **aliases}


def _is_unchanged(memory: Memory, stored: Record, record: Record) -> bool:
    if memory.ttl_seconds is not None or (memory.time is not None and stored.time != record.time):
        return False
    said = {name: value for name, value in stored.payload.items() if name not in _COMPUTED_FIELDS}
    return "expires" not in stored.payload and replace(
        record, acl=tuple(sorted(record.acl)), time=None, lang=""
    ) == replace(stored, acl=tuple(sorted(stored.acl)), time=None, lang="", payload=said)


MIN_ECHO_SHARE = 0.9
"""Share of a text's words that must be part of runs in the shown memories for the text to count as an echo."""

_RUN_LENGTH = 3
_NEGATIONS = frozenset("no not never none t без не нет ни никогда".split())  # one such word changes the statement

_FRAMING_WORDS = frozenset(
    "well hello hi dear said told mentioned remember recall earlier previously "
    "ну привет итак сказали говорили упоминали помню ранее".split()
)
"""Words around a quotation that carry no information."""


def find_echo(text: str, shown: Sequence[Record]) -> str | None:
    """The id of the memory that `text` only repeats, among the memories in its prompt; None when it adds something.

    A word is repeated when it belongs to a run of three words that occurs in one of the memories; a text shorter than
    that must occur as a whole. At least `MIN_ECHO_SHARE` of the words must be repeated, over all memories together, and
    the others must carry no meaning: one new name, number or negation makes it a new statement. The memory that covers
    most of the text is returned.
    """
    spoken = split_words(text)
    if not spoken:
        return None
    places = {record.id: _repeated_positions(spoken, split_words(record.text)) for record in shown}
    known = set[int]().union(*places.values())
    fresh = [word for at, word in enumerate(spoken) if at not in known]
    if len(known) < MIN_ECHO_SHARE * len(spoken) or any(map(_adds_meaning, fresh)):
        return None
    return max(places, key=lambda record_id: len(places[record_id]))


def _adds_meaning(word: str) -> bool:
    """Whether a word that occurs in none of the memories makes the text a new statement."""
    return word in _NEGATIONS or (term_id(word) is not None and word not in _FRAMING_WORDS)


def _repeated_positions(spoken: Sequence[str], heard: Sequence[str]) -> set[int]:
    """The positions of words that are part of a run of words that also occurs in a memory."""
    size = min(_RUN_LENGTH, len(spoken))
    runs = {tuple(heard[at : at + size]) for at in range(len(heard) - size + 1)}
    starts = [at for at in range(len(spoken) - size + 1) if tuple(spoken[at : at + size]) in runs]
    return {at + step for at in starts for step in range(size)}
