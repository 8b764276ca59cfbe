"""Searches in PostgreSQL: permissions and filters are inside every statement, and a statement reads its part's version.

Words and vectors are searched on two connections at the same time. Each statement sees the database at its own moment;
when the version of the part changed between them, the search is repeated in one snapshot.
"""

import heapq
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from contexture.adapters.index import codec
from contexture.adapters.index.hits import collect_hits
from contexture.adapters.index.postgres.filters_sql import compile_filter
from contexture.adapters.index.postgres.schema import ORDINAL_BITS
from contexture.adapters.index.postgres.write import decode_text, reader_digests
from contexture.adapters.index.quantized_vectors import quantize
from contexture.adapters.index.record_store import PassageRow
from contexture.adapters.index.scoring import TermWeights, idf_weights
from contexture.adapters.postgres.pool import Connection, PostgresPool
from contexture.types import BM25, Collection, Filter, Hit, Query, Scope, Vector

SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ, READ ONLY"
"""A transaction that reads one version of the whole database and blocks nobody."""

READABLE = "ARRAY(SELECT class FROM readers WHERE part = %(part)s AND reader = ANY(%(readers)b::bytea[]))"
"""Access classes that a scope may read."""

_FULL_SCAN_LIMIT = 1 << 15  # up to this many readable vectors are all compared by dot product,
_NEAREST_BY_SIGNS = 1 << 12  # of more only this many, those nearest by their sign bits, as in the embedded index,
_NEAREST_PER_RESULT = 128  # or this many for each requested result
_EXTRA_CANDIDATES = 64  # requested beyond `k`, so that ties with the last seldom need a second request
_LIMIT_GROWTH = 8
_PROPOSED_PER_PASSING = 2  # of so many proposed passages one must pass a filter that is tested last
_GRAPH_CANDIDATES = 4  # taken from a graph per requested result, and then compared exactly

_STATISTICS = f"""
    WITH mine AS MATERIALIZED (SELECT class, passages FROM classes WHERE class = ANY({READABLE}))
    SELECT version, (SELECT coalesce(sum(passages), 0)::bigint FROM mine),
        (SELECT jsonb_object_agg(name || ' ' || size, ARRAY[space, vectors]) FROM (
            SELECT space, sum(vectors)::bigint AS vectors FROM vector_counts
            WHERE part = %(part)s AND class = ANY(ARRAY(SELECT class FROM mine)) GROUP BY space
        ) v JOIN spaces USING (space) WHERE vectors > 0),
        (SELECT jsonb_object_agg(term, held) FROM (
            SELECT term, sum(passages)::bigint AS held FROM frequencies
            WHERE part = %(part)s AND term = ANY(%(terms)s::int[]) AND class = ANY(ARRAY(SELECT class FROM mine))
            GROUP BY term) f),
        ARRAY(SELECT space FROM graphs WHERE part = %(part)s)
    FROM parts WHERE part = %(part)s
"""
_PROPOSE = f"""
    SELECT c.version, x.pid, x.score, r.id, {{passes}} FROM parts c LEFT JOIN LATERAL ({{proposed}}) x ON TRUE
    LEFT JOIN records r ON r.part = %(part)s AND r.record = x.pid >> {ORDINAL_BITS} WHERE c.part = %(part)s
"""
_PASSES = "EXISTS (SELECT FROM fields f WHERE f.part = %(part)s AND f.class = r.class AND f.record = r.record AND {})"
_AMONG_RECORDS = f"AND pid >> {ORDINAL_BITS} IN (SELECT unnest(%(records)b::bigint[]))"
_WORDS = f"""
    SELECT pid, sum(impact * (%(weights)s::int[])[array_position(%(terms)s::int[], term)]) AS score FROM postings
    WHERE part = %(part)s AND term = ANY(%(terms)s::int[]) AND class = ANY({READABLE}) {{where}}
    GROUP BY pid ORDER BY score DESC LIMIT %(limit)s
"""
# In the arithmetic of the embedded index, of 32 bits, so that equal vectors have equal scores there and here.
_SCORE = "((-(v.codes <#> %(codes)s::halfvec))::real * v.scale) * %(scale)s::real"
_IN_SPACE = f"part = %(part)s AND space = %(space)s AND class = ANY({READABLE})"
_ALL_VECTORS = f"""
    SELECT v.pid, {_SCORE} AS score FROM vectors v WHERE {_IN_SPACE} {{where}} ORDER BY score DESC LIMIT %(limit)s
"""
# With LIMIT 1, because only so the planner always looks up those few and never reads all vectors to join them.
_NEAR_VECTORS = f"""
    SELECT v.pid, {_SCORE} AS score FROM (
        SELECT class, pid FROM vectors WHERE {_IN_SPACE} {{where}}
        ORDER BY hamming_distance(signs, %(signs)s::varbit), pid LIMIT %(near)s
    ) n CROSS JOIN LATERAL (
        SELECT o.pid, o.codes, o.scale FROM vectors o
        WHERE o.part = %(part)s AND o.space = %(space)s AND o.class = n.class AND o.pid = n.pid LIMIT 1
    ) v ORDER BY score DESC LIMIT %(limit)s
"""
# With the part and the space as literals, because only so the planner finds the partial index.
_GRAPH_VECTORS = f"""
    SELECT v.pid, {_SCORE} AS score FROM (
        SELECT pid, codes, scale FROM vectors WHERE part = {{part}} AND space = {{space}} AND class = ANY({READABLE})
        {{where}} ORDER BY (codes::halfvec({{size}})) <=> %(codes)s::halfvec({{size}}) LIMIT %(near)s
    ) v ORDER BY score DESC LIMIT %(limit)s
"""
_PASSAGES = f"""
    SELECT c.version, p.pid, r.class, r.id, r.header, r.hash, r.rules, p.text, p.facts, EXISTS (
        SELECT FROM records o JOIN classes k USING (class)
        WHERE o.part = %(part)s AND o.id = r.id AND o.space < r.space AND k.private AND o.class = ANY({READABLE}))
    FROM parts c LEFT JOIN (passages p JOIN records r ON r.part = %(part)s AND r.record = p.pid >> {ORDINAL_BITS})
        ON p.part = %(part)s AND p.pid = ANY(%(pids)s) AND r.class = ANY({READABLE})
    WHERE c.part = %(part)s
"""
_SIMILARITIES = f"""
    SELECT v.pid, {_SCORE} FROM vectors v WHERE part = %(part)s AND space = %(space)s AND pid = ANY(%(pids)s)
    AND class = ANY(ARRAY(SELECT class FROM records WHERE part = %(part)s AND record = ANY(%(records)s)))
    AND class = ANY({READABLE})
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One tenant's collection, and the version at which it was read."""

    part: int
    tenant: str
    collection: Collection
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopedQuery:
    """A search in one part within one scope; its filter names columns.

    `spaces` are, by name and size, the numbers of the vector spaces of readable passages, and how many vectors are
    readable there. `passages` is how many passages are, and `graphs` are the vector spaces of this part with an HNSW
    graph.
    """

    part: Part
    readers: Sequence[bytes]
    query: Query
    weights: TermWeights
    spaces: Mapping[tuple[str, int], tuple[int, int]]
    passages: int
    graphs: AbstractSet[int]

    def parameters(self, **more: object) -> dict[str, object]:
        """Parameters of a statement on this part."""
        return {"part": self.part.part, "readers": self.readers, **more}


@dataclass(slots=True)
class PostgresView:
    """Answers one search; `versions` are those of the part that its statements have read.

    A space with a graph, of which the scope may read more than `exact_limit` vectors, is searched in it.
    """

    pool: PostgresPool
    executor: Executor | None
    asked: ScopedQuery
    exact_limit: int
    versions: set[int] = field(default_factory=set[int])
    shadowed: set[int] = field(default_factory=set[int])
    _keys: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    _records: list[int] = field(default_factory=list[int])
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def weigh_terms(self, terms: Sequence[int]) -> TermWeights:
        """BM25 weights of the terms of the query, which were read with the statistics."""
        del terms
        return self.asked.weights

    def find_candidates(
        self, weights: TermWeights, vectors: Mapping[str, Vector], k: int
    ) -> dict[str, dict[int, float]]:
        """By channel, its best `k` passages and all that tie with the last; BM25 comes first."""
        if not weights.terms:
            return {name: self.search_vectors(name, vector, k) for name, vector in vectors.items()}
        running = self.executor.submit(self.search_words, k) if self.executor is not None and vectors else None
        try:
            dense = {name: self.search_vectors(name, vector, k) for name, vector in vectors.items()}
        finally:
            words = running.result() if running is not None else None
        return {BM25: self.search_words(k) if words is None else words, **dense}

    def search_words(self, k: int) -> dict[int, float]:
        """The best `k` passages by BM25, with every passage that ties with the last."""
        given, unit = self.asked.weights.terms, self.asked.weights.unit
        terms = np.array(list(given), np.uint32).view(np.int32).tolist()
        found = self._propose(_WORDS, k, {"terms": terms, "weights": list(given.values())})
        return {pid: int(score) * unit for pid, score in found.items()}

    def search_vectors(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        space, readable = self.asked.spaces.get((name, len(vector)), (0, 0))
        if not readable:
            return {}
        given = {"space": space, **_vector_parameters(vector)}
        if space in self.asked.graphs and readable > self.exact_limit:
            statement = _GRAPH_VECTORS.format(
                part=int(self.asked.part.part), space=int(space), size=len(vector), where="{where}"
            )
            return self._propose(statement, k, {**given, "near": _GRAPH_CANDIDATES * k})
        if readable <= _FULL_SCAN_LIMIT:
            return self._propose(_ALL_VECTORS, k, given)
        near = max(_NEAREST_BY_SIGNS, _NEAREST_PER_RESULT * k)
        return self._propose(_NEAR_VECTORS, k, {**given, "near": near})

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        space, readable = self.asked.spaces.get((name, len(vector)), (0, 0))
        records = sorted({pid >> ORDINAL_BITS for pid in pids})
        given = {"space": space, "pids": list(pids), "records": records, **_vector_parameters(vector)}
        return dict(self._fetch(_SIMILARITIES, given)) if readable else {}

    def passage_keys(self, pids: Sequence[int]) -> Mapping[int, tuple[str, int]]:
        """Record id and ordinal of proposed passages, used to break ties."""
        return {pid: self._keys[pid] for pid in pids}

    def load_passages(self, pids: Sequence[int]) -> list[PassageRow]:
        """Those of these passages that the scope may read; notes those that a private record of the same id hides."""
        rows: list[PassageRow] = []
        for version, pid, access, id_, header, digest, rules, text, facts, shadowed in self._fetch(
            _PASSAGES, {"pids": list(pids)}
        ):
            self.versions.add(version)
            if pid is not None:
                ordinal, known = pid & (1 << ORDINAL_BITS) - 1, codec.unpack_facts(facts)
                rows.append(
                    PassageRow(pid, access, decode_text(id_), header, digest, rules, ordinal, decode_text(text), known)
                )
                if shadowed:
                    self.shadowed.add(pid)
        return rows

    def _propose(self, statement: str, k: int, given: Mapping[str, object]) -> dict[int, float]:
        """The best `k` passages that a statement proposes, with every passage that ties with the last.

        Most filters keep most passages, so that it is cheaper to test those proposed. Where too few of them pass, only
        records that pass are searched.
        """
        if self.asked.query.where is None:
            return self._propose_until(statement.format(where=""), k, given, k + _EXTRA_CANDIDATES)
        if not self._records:
            limit = _PROPOSED_PER_PASSING * (k + _EXTRA_CANDIDATES)
            more: dict[str, object] = dict(given)
            condition = compile_filter(self.asked.query.where, _adder(more))
            proposed, is_whole = self._run(statement.format(where=""), more, limit, _PASSES.format(condition))
            passing = {pid: score for pid, (score, passes) in proposed.items() if passes}
            floor = min((score for score, _ in proposed.values()), default=0.0)
            if is_whole or (_PROPOSED_PER_PASSING * len(passing) >= limit and _kth_best(passing, k) > floor):
                return _top_with_ties(passing, k)
        given = {**given, "records": self._load_records()}
        return self._propose_until(statement.format(where=_AMONG_RECORDS), k, given, k + _EXTRA_CANDIDATES)

    def _propose_until(self, statement: str, k: int, given: Mapping[str, object], limit: int) -> dict[int, float]:
        """The best `k` passages; asks for more until none beyond them can tie with the last."""
        while True:
            proposed, is_whole = self._run(statement, given, limit, "TRUE")
            found = {pid: score for pid, (score, _) in proposed.items()}
            if is_whole or min(found.values()) < _kth_best(found, k):
                return _top_with_ties(found, k)
            limit *= _LIMIT_GROWTH

    def _run(
        self, statement: str, given: Mapping[str, object], limit: int, passes: str
    ) -> tuple[dict[int, tuple[float, bool]], bool]:
        """Score of each proposed passage, and whether it passes the condition; also whether there are no more."""
        near = max(int(str(given.get("near", 0))), limit)
        rows = self._fetch(_PROPOSE.format(passes=passes, proposed=statement), {**given, "near": near, "limit": limit})
        found: dict[int, tuple[float, bool]] = {}
        for version, pid, score, id_, is_passing in rows:
            self.versions.add(version)
            if id_ is not None:
                found[pid] = score, is_passing
                self._keys[pid] = decode_text(id_), pid & (1 << ORDINAL_BITS) - 1
        return found, len(rows) < limit

    def _load_records(self) -> list[int]:
        """The readable records that pass the filter."""
        with self._guard:
            if not self._records and self.asked.query.where is not None:
                given: dict[str, object] = {}
                statement = passing_records(self.asked.query.where, given)
                query = (
                    f"SELECT c.version, x.record FROM parts c LEFT JOIN ({statement}) x ON TRUE WHERE c.part = %(part)s"
                )
                for version, record in self._fetch(query, given):
                    self.versions.add(version)
                    self._records.append(-1 if record is None else record)
            return self._records

    def _fetch(self, statement: str, given: Mapping[str, object]) -> list[tuple[Any, ...]]:
        with self.pool.connection() as connection:
            return fetch(connection, statement, self.asked.parameters(**given))


def passing_records(where: Filter, given: dict[str, object]) -> str:
    """The statement that selects the readable records that pass a filter; its parameters are added to `given`."""
    condition = compile_filter(where, _adder(given))
    # Read once and hashed: without OFFSET each candidate might look for its own record.
    return (
        f"SELECT f.record FROM fields f WHERE f.part = %(part)s AND f.class = ANY({READABLE}) AND {condition} OFFSET 0"
    )


def load_statistics(db: Connection, part: Part, scope: Scope, query: Query) -> tuple[ScopedQuery, int]:
    """What a search needs to know of what a scope may read, and the version at which it was read."""
    terms = list(dict.fromkeys(query.terms))
    readers = reader_digests(scope.principals)
    signed = np.array(terms, np.uint32).view(np.int32).tolist()
    given = {"part": part.part, "readers": readers, "terms": signed}
    rows = fetch(db, _STATISTICS, given)
    version, passages, *found = rows[0] if rows else (-1, 0, None, None, None)
    spaces: Mapping[str, tuple[int, int]] = found[0] or {}
    held: Mapping[str, int] = found[1] or {}
    graphs: Sequence[int] = found[2] or ()
    counts = {term: held.get(str(each), 0) for term, each in zip(terms, signed, strict=True)}
    named = {_parse_space(name): (number, count) for name, (number, count) in spaces.items()}
    asked = ScopedQuery(
        part=part,
        readers=readers,
        query=query,
        weights=idf_weights(terms, counts, passages),
        spaces=named,
        passages=passages,
        graphs=frozenset(graphs),
    )
    return asked, version


def answer(view: PostgresView) -> list[Hit]:
    """The hits of a search, ordered by record id and ordinal."""
    hits, _ = collect_hits(view, view.asked.query, view.load_passages, lambda _: view.shadowed)
    return hits


def fetch(db: Connection, statement: str, given: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """The rows of a statement, which is prepared when it is used again."""
    return db.execute(statement.encode(), given, binary=True).fetchall()


def iter_graph_indexes(part: int, space: int, size: int) -> Iterator[str]:
    """The statements that build the HNSW graph of one vector space of one part."""
    yield (
        f"CREATE INDEX IF NOT EXISTS graph_{part}_{space} ON {{}} "
        f"USING hnsw ((codes::halfvec({size})) halfvec_cosine_ops) WHERE part = {part} AND space = {space}"
    )
    yield f"INSERT INTO graphs VALUES ({part}, {space}) ON CONFLICT DO NOTHING"


def _adder(given: dict[str, object]) -> Callable[[object], str]:
    """Adds parameters of a filter to those of a statement."""

    def add(value: object) -> str:
        name = f"filter_{len(given)}"
        given[name] = value
        return f"%({name})s"

    return add


def _kth_best(found: Mapping[int, float], k: int) -> float:
    """The `k`-th best score; minus infinity if there are fewer."""
    return heapq.nlargest(k, found.values())[-1] if len(found) >= k else -math.inf


def _top_with_ties(found: Mapping[int, float], k: int) -> dict[int, float]:
    """The best `k` passages, with every passage that ties with the last."""
    floor = _kth_best(found, k)
    return {pid: score for pid, score in found.items() if score >= floor}


def _vector_parameters(vector: Vector) -> dict[str, object]:
    codes, scales = quantize(np.asarray(vector, np.float32)[None, :])
    numbers = codes[0].tolist()
    return {
        "codes": f"[{','.join(map(str, numbers))}]",
        "signs": "".join("1" if number > 0 else "0" for number in numbers),
        "scale": float(scales[0]),
    }


def _parse_space(name: str) -> tuple[str, int]:
    plain, _, size = name.rpartition(" ")
    return plain, int(size)
