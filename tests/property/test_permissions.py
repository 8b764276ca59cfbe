"""What a user may not see changes nothing that this user gets: not a result, not a score, not a byte of a prompt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.builders.query.request import QueryRecipe, QueryRequest
from contexture.capsule import pack_capsule
from contexture.ledger import Trace
from contexture.ports import Index
from contexture.retrieval.search import SearchOptions
from contexture.testing.doubles import HashEmbedder
from contexture.testing.strategies import filters
from contexture.types import Filter, Record, Scope
from support.workbench import NAME, Parts, Workbench, workbench

ANNA = Scope(tenant="acme", user="anna", groups=("sales",))
ENGLISH = HashEmbedder(48, "hash-en")
WORDS = ("pump", "valve", "leak", "river", "насос", "swordfish", "the")
ACLS = (("public",), ("user:anna",), ("group:sales", "user:boris"), ("user:boris",), ("group:staff",), ())


@dataclass(frozen=True)
class Write:
    """One change to a store: a record written, or removed when `record` is None."""

    tenant: str
    id: str
    record: Record | None
    writer: str = "root"

    @property
    def visible(self) -> bool:
        """Whether the one who asks may see what was written."""
        return (
            self.record is not None
            and self.tenant == ANNA.tenant
            and not set(self.record.acl).isdisjoint(ANNA.principals)
        )


def texts() -> st.SearchStrategy[str]:
    """Sentences of a few words, so that terms are shared."""
    sentence = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
    return st.lists(sentence, min_size=1, max_size=4).map(lambda some: ". ".join(some) + ".")


@st.composite
def histories(draw: st.DrawFn) -> list[Write]:
    """Changes to a few ids; a history knows few texts and few titles, so that many scores tie."""
    some = draw(st.lists(texts(), min_size=1, max_size=4))
    titles = draw(st.sampled_from((("",), ("", "pump", "river valve"))))
    return draw(st.lists(writes(some, titles), min_size=8, max_size=30))


@st.composite
def writes(draw: st.DrawFn, some: Sequence[str], titles: Sequence[str]) -> Write:
    """A record for one of a few ids, visible or not, or its removal."""
    name = draw(st.sampled_from("abcdefghijkl"))
    tenant = draw(st.sampled_from(("acme", "acme", "acme", "globex")))
    if draw(st.integers(0, 9)) == 0:
        return Write(tenant, name, None)
    record = Record(
        id=name,
        text=draw(st.sampled_from(some)),
        acl=(*draw(st.sampled_from(ACLS)), "user:root"),
        title=draw(st.sampled_from(titles)),
        source=draw(st.sampled_from(("wire", "blog"))),
        session=draw(st.sampled_from(("", "s"))),
        position=draw(st.integers(0, 5)),
        payload={"rating": draw(st.integers(0, 5)), "tags": draw(st.lists(st.sampled_from(WORDS), max_size=2))},
    )
    return Write(tenant, name, record)


@pytest.fixture(params=["embedded", pytest.param("qdrant", marks=[pytest.mark.needs("qdrant"), pytest.mark.slow])])
async def stores(request: pytest.FixtureRequest, new_folder: Callable[[], Path]) -> AsyncIterator[tuple[Index, Index]]:
    """Two stores with the same collection, embedded or over a real Qdrant cluster."""
    parts = Parts(english=ENGLISH)
    if request.param == "qdrant":
        place = request.getfixturevalue("qdrant_place")
        async with over_qdrant(place, new_folder(), parts) as crowded, over_qdrant(place, new_folder(), parts) as alone:
            yield crowded, alone
        return
    async with workbench(new_folder(), parts) as crowded, workbench(new_folder(), parts) as alone:
        yield crowded.index, alone.index


@asynccontextmanager
async def over_qdrant(place: str, folder: Path, parts: Parts) -> AsyncGenerator[Index]:
    """A store that is searched in a Qdrant cluster."""
    from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
    from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite

    options = EmbeddedOptions(vectors=parts.encoders.vectors, threads=1)
    server = QdrantServer(QdrantOptions(place=place, timeout=60))
    index = await QdrantOverSqlite.open_with_server(folder, options, server)
    try:
        yield index
    finally:
        await index.close()


@dataclass(frozen=True)
class Asking:
    """What anna asks, and how."""

    question: str
    where: Filter | None
    pool: int
    floor: float
    budget: int

    @property
    def parts(self) -> Parts:
        """An engine with small pools, so that the edge between in and out matters."""
        options = SearchOptions(channel_k=self.pool, pool=self.pool, floor=self.floor)
        return Parts(english=ENGLISH, options=options, recipe=QueryRecipe(top_k=5))


async def carry_out(bench: Workbench, changes: Sequence[Write], example: int) -> None:
    """Write as someone who may see everything, or as its owner, one change at a time, in tenants of this example."""
    for change in changes:
        writer = Scope(tenant=f"{change.tenant}-{example}", user=change.writer)
        await bench.made.ensure(writer)
        if change.record is None:
            await bench.index.delete(writer, NAME, [change.id])
        else:
            await bench.add(writer, [change.record])


async def answers(index: Index, changes: Sequence[Write], asking: Asking, example: int) -> tuple[object, ...]:
    """Everything anna gets out of a store that saw these changes."""
    bench = Workbench(index, asking.parts)
    anna = replace(ANNA, tenant=f"{ANNA.tenant}-{example}")
    await bench.made.ensure(anna)
    await carry_out(bench, changes, example)
    found = await bench.search.search(anna, NAME, asking.question, where=asking.where, trace=Trace())
    request = QueryRequest(query=asking.question, where=asking.where, max_tokens=asking.budget)
    built = await bench.builder.build(request, scope=anna)
    return (
        [(each.hit.record, each.hit.ordinal, each.score.hex(), dict(each.signals)) for each in found],
        built.context,
        built.ledger,
        pack_capsule(built.capsule),
        list(await index.scroll(anna, NAME, where=asking.where)),
    )


def final(changes: Sequence[Write]) -> list[Write]:
    """The changes that are left for the asker to see, in the order of their ids."""
    last = {(change.tenant, change.id): change for change in changes}
    return sorted((change for change in last.values() if change.visible), key=lambda change: change.id)


@st.composite
def private_writes(draw: st.DrawFn, owner: str) -> Write:
    """A record that only its owner may see, under an id that others use too, or its removal."""
    name = draw(st.sampled_from("abcdefghijkl"))
    if draw(st.integers(0, 4)) == 0:
        return Write(ANNA.tenant, name, None, writer=owner)
    record = Record(id=name, text=draw(texts()), acl=(f"user:{owner}",), title=draw(st.sampled_from(("", "pump"))))
    return Write(ANNA.tenant, name, record, writer=owner)


ASKING = st.builds(
    Asking,
    question=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    where=st.none() | st.none() | filters(max_leaves=3),
    pool=st.sampled_from((1, 2, 5, 60)),
    floor=st.sampled_from((0.0, 0.3)),
    budget=st.sampled_from((110, 160, 2_000)),
)
EXAMPLES = count()


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=histories(), asking=ASKING)
async def test_what_is_hidden_changes_nothing(
    changes: list[Write], asking: Asking, stores: tuple[Index, Index]
) -> None:
    """Results, scores bit for bit, prompt, ledger and capsule are the same with the hidden records and without them.

    Hidden ones are of other users, of other tenants, or records that became hidden; they come before, between and
    after the visible ones, are rewritten and removed, and the visible ones of the other store arrive in another order.
    """
    crowded, alone = stores
    example = next(EXAMPLES)

    assert await answers(crowded, changes, asking, example) == await answers(alone, final(changes), asking, example)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(histories().flatmap(st.sampled_from) | private_writes("anna"), min_size=4, max_size=20),
    foreign=st.lists(st.tuples(st.integers(0, 20), private_writes("mallory")), min_size=1, max_size=12),
    asking=ASKING,
)
async def test_private_records_of_others_under_ones_own_ids_change_nothing(
    changes: list[Write], foreign: list[tuple[int, Write]], asking: Asking, stores: tuple[Index, Index]
) -> None:
    """Everything is the same with them and without, whether anna has a private record of the id, a shared one or both.

    They come before, between and after the others, are rewritten and removed; their owner reads no other record.
    """
    crowded, alone = stores
    example = next(EXAMPLES)
    changes = [replace(change, record=_hide_from_strangers(change.record)) for change in changes]
    mixed = list(changes)
    for at, write in foreign:
        mixed.insert(at, write)

    assert await answers(crowded, mixed, asking, example) == await answers(alone, changes, asking, example)


def _hide_from_strangers(record: Record | None) -> Record | None:
    if record is None:
        return None
    return replace_struct(record, acl=tuple("group:sales" if name == "public" else name for name in record.acl))
