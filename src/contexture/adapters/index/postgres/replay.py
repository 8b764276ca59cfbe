"""Passages of an index in PostgreSQL for another search engine: all of them, or what writes since a state changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import AccessClass
from contexture.adapters.index.collection_registry import merge_columns
from contexture.adapters.index.postgres.schema import ORDINAL_BITS
from contexture.adapters.index.postgres.search import fetch
from contexture.adapters.index.postgres.write import decode_text
from contexture.adapters.index.record_store import PassageRow, StoredVectors, StoreState
from contexture.adapters.postgres.pool import PostgresPool
from contexture.types import FieldType

_PAGE_ROWS = 2_000
_LOG_LENGTH = 100_000  # writes that another search engine may be behind before it must be filled anew
_NEVER = StoreState(0, "")
_COLUMNS = "p.pid, r.class, r.id, r.header, r.hash, r.rules, p.text, p.facts, p.vectors"
_FROM = f"FROM passages p JOIN records r ON r.part = p.part AND r.record = p.pid >> {ORDINAL_BITS}"
_PARTS = "(SELECT part FROM parts WHERE name = %(name)s)"


class PostgresReplay:
    """Reads the log of writes, which `keep_log` starts, and the passages that they added."""

    def __init__(self, pool: PostgresPool, part: int | None = None) -> None:
        self._pool = pool
        self._part = part

    def within(self, part: int) -> PostgresReplay:
        """The same, for passages of one part only."""
        return PostgresReplay(self._pool, part)

    def keep_log(self) -> None:
        """Let every write from now on, of every process, be logged."""
        if not self._fetch("SELECT logs FROM store")[0][0]:
            with self._pool.transaction() as db:
                db.execute("UPDATE store SET logs = TRUE")

    def prune_log(self) -> None:
        """Forget all but the last writes."""
        with self._pool.transaction() as db:
            db.execute("DELETE FROM log WHERE seq <= (SELECT max(seq) FROM log) - %s", (_LOG_LENGTH,))

    def store_id(self) -> str:
        """Unique id of this store."""
        return str(self._fetch("SELECT id FROM store")[0][0])

    @property
    def seq(self) -> int:
        """Number of the last logged write."""
        return self.state().seq

    def state(self) -> StoreState:
        """State after the last logged write."""
        rows = self._fetch("SELECT seq, mark::text FROM log ORDER BY seq DESC LIMIT 1")
        return StoreState(*rows[0]) if rows else _NEVER

    def last_write(self, collection: str) -> int:
        """Number of the last logged write to a collection of this name, or of the last declaration of one."""
        query = (
            f"SELECT greatest((SELECT max(seq) FROM log WHERE part IN {_PARTS}), "
            "(SELECT max(version) FROM parts WHERE name = %(name)s), 0)"
        )
        return int(self._fetch(query, {"name": collection})[0][0])

    def has_history_since(self, seen: StoreState) -> bool:
        """Whether the store was once in this state, and the log has every write since then."""
        given = {"seq": seen.seq, "mark": seen.mark}
        return bool(self._fetch("SELECT FROM log WHERE seq = %(seq)s AND mark::text = %(mark)s", given))

    def meta(self, key: str) -> str | None:
        """Always None: another search engine keeps its state itself."""
        del key
        return None

    def set_meta(self, key: str, value: str) -> None:
        """Do nothing: see `meta`."""

    def prune_removed(self, seq: int) -> None:
        """Do nothing: other processes may still need the log."""

    def declared_columns(self) -> dict[str, dict[str, FieldType]]:
        """By collection, the columns of every field that some tenant has declared."""
        rows = self._fetch("SELECT DISTINCT name, fields FROM parts ORDER BY name, fields")
        return merge_columns((name, fields) for name, fields in rows)

    def load_access_classes(self, collection: str) -> dict[int, AccessClass]:
        """Every access class of a collection."""
        query = "SELECT class, tenant, acl, passages FROM classes JOIN parts USING (part) WHERE name = %(name)s"
        return {
            number: AccessClass(decode_text(tenant), tuple(json.loads(acl)), passages)
            for number, tenant, acl, passages in self._fetch(query, {"name": collection})
        }

    def count(self, collection: str) -> int:
        """Number of passages in a collection."""
        query = f"SELECT coalesce(sum(passages), 0)::bigint FROM classes WHERE part IN {_PARTS}"
        return int(self._fetch(query, {"name": collection})[0][0])

    def passages_since(self, seq: int, collection: str) -> Iterator[PassageRow]:
        """Every passage of a collection written after `seq` that still exists, with its vectors; all of them for 0."""
        if seq > 0:
            for part, pids in self._added_since(seq, collection):
                query = f"SELECT {_COLUMNS} {_FROM} WHERE p.part = %(part)s AND p.pid = ANY(%(pids)s) ORDER BY p.pid"
                yield from map(_to_passage_row, self._fetch(query, {"part": part, "pids": pids}))
            return
        query = (
            f"SELECT {_COLUMNS} {_FROM} WHERE p.part = %(part)s AND p.pid > %(after)s ORDER BY p.pid LIMIT {_PAGE_ROWS}"
        )
        for (part,) in self._fetch("SELECT part FROM parts WHERE name = %(name)s ORDER BY part", {"name": collection}):
            after = -1
            while rows := self._fetch(query, {"part": part, "after": after}):
                yield from map(_to_passage_row, rows)
                after = rows[-1][0]

    def removed_since(self, seq: int, collection: str) -> list[int]:
        """Every passage of a collection removed after `seq`."""
        query = f"SELECT unnest(removed) FROM log WHERE seq > %(seq)s AND part IN {_PARTS}"
        return [pid for (pid,) in self._fetch(query, {"seq": seq, "name": collection})]

    def load_vectors(self, pids: Sequence[int]) -> list[StoredVectors]:
        """Vectors of these passages; removed ones are left out."""
        parts = "ARRAY(SELECT part FROM parts)" if self._part is None else "ARRAY[%(part)s::int]"
        query = f"SELECT p.pid, r.class, p.vectors, r.id {_FROM} WHERE p.pid = ANY(%(pids)s) AND p.part = ANY({parts})"
        return [
            StoredVectors(pid, access, vectors, (decode_text(id_), pid & (1 << ORDINAL_BITS) - 1))
            for pid, access, vectors, id_ in self._fetch(query, {"pids": list(pids), "part": self._part})
        ]

    def passage_keys(self, pids: Sequence[int]) -> Mapping[int, tuple[str, int]]:
        """Record id and ordinal of these passages, used to break ties; removed ones are left out."""
        return {stored.pid: stored.passage_key for stored in self.load_vectors(pids)}

    def _added_since(self, seq: int, collection: str) -> list[tuple[int, list[int]]]:
        query = f"SELECT part, added FROM log WHERE seq > %(seq)s AND part IN {_PARTS} ORDER BY seq"
        return [(part, pids) for part, pids in self._fetch(query, {"seq": seq, "name": collection}) if pids]

    def _fetch(self, query: str, given: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        with self._pool.connection() as connection:
            return fetch(connection, query, given or {})


def _to_passage_row(columns: Sequence[Any]) -> PassageRow:
    pid, access, id_, header, digest, rules, text, facts, vectors = columns
    ordinal, known = pid & (1 << ORDINAL_BITS) - 1, codec.unpack_facts(facts)
    return PassageRow(pid, access, decode_text(id_), header, digest, rules, ordinal, decode_text(text), known, vectors)
