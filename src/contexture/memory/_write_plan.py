"""Plans the writes of a batch of memories: which are new, and which id each one gets.

A memory with a known idempotency key, or one that only echoes the memories in its prompt, is not stored again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from contexture.conversation import Memory
from contexture.memory.records import alias_ids, make_alias_record, make_memory_id, memory_to_record, primary_alias_id
from contexture.text.terms import split_words, term_id
from contexture.types import Record, Scope

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
