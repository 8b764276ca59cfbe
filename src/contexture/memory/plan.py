"""Decides, before anything is written, which memories of a batch are new and which id each one has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from contexture.conversation import Memory
from contexture.memory.loops import repeats
from contexture.memory.records import alias_of, alias_record, aliases_of, new_id, record_of
from contexture.types import Record, Scope

_COMPUTED = ("facts", "feedback", "expires")


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The id of every memory of a batch, in order, and the records to write for it."""

    ids: tuple[str, ...]
    fresh: tuple[Record, ...]


def wanted(memories: Sequence[Memory], scope: Scope) -> list[str]:
    """The ids of every record on which the plan for a batch depends."""
    ids: dict[str, None] = {}
    for memory in memories:
        keys = aliases_of(memory, scope) if memory.idempotency_key else ()
        ids.update(dict.fromkeys((*keys, *memory.injected, *([memory.id] if memory.id else ()))))
    return list(ids)


def planned(memories: Sequence[Memory], scope: Scope, stored: Mapping[str, Record], now: datetime) -> Plan:
    """What to write for a batch, given those of the `wanted` records that exist and that the scope may read.

    A memory whose idempotency key is known, and one that only repeats what it was shown, is not new:
    it has the id of the memory that is there.
    """
    known = dict(stored)
    fresh: dict[str, Record] = {}
    ids: list[str] = []
    for memory in memories:
        found = _by_key(memory, scope, known) or _repeated(memory, known)
        if found is None:
            added = _records(memory, scope, known, now)
            fresh.update(added)
            known.update(added)
            found = memory.id or next(iter(added))
        ids.append(found)
    return Plan(ids=tuple(ids), fresh=tuple(fresh.values()))


def _by_key(memory: Memory, scope: Scope, known: Mapping[str, Record]) -> str | None:
    if not memory.idempotency_key:
        return None
    found = next((known[alias] for alias in aliases_of(memory, scope) if alias in known), None)
    return None if found is None else found.payload.get("of", found.id)


def _repeated(memory: Memory, known: Mapping[str, Record]) -> str | None:
    shown = [known[each] for each in memory.injected if each in known]
    return repeats(memory.text, shown) if shown else None


def _records(memory: Memory, scope: Scope, known: Mapping[str, Record], now: datetime) -> dict[str, Record]:
    """The record of a new memory, and the alias that its key needs when it has an id of its own.

    Nothing when the same is stored already; what readers think of it stays when it is replaced.
    """
    alias = alias_of(memory, scope) if memory.idempotency_key else ""
    record = record_of(memory, memory.id or alias or new_id(), scope, now)
    stored = known.get(record.id)
    if stored is not None and _unchanged(memory, stored, record):
        return {}
    if stored is not None and "feedback" in stored.payload:
        record = replace(record, payload={**record.payload, "feedback": stored.payload["feedback"]})
    aliases = {alias: alias_record(alias, record)} if alias and alias != record.id else {}
    return {record.id: record, **aliases}


def _unchanged(memory: Memory, stored: Record, record: Record) -> bool:
    if memory.ttl_seconds is not None or (memory.time is not None and stored.time != record.time):
        return False
    said = {name: value for name, value in stored.payload.items() if name not in _COMPUTED}
    return "expires" not in stored.payload and replace(
        record, acl=tuple(sorted(record.acl)), time=None, lang=""
    ) == replace(stored, acl=tuple(sorted(stored.acl)), time=None, lang="", payload=said)
