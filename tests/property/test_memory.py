"""Promises of the memory service, on generated memories."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contexture.conversation import Feedback, Memory, MemoryKind, Recall
from contexture.memory.service import LocalMemory
from contexture.testing.doubles import NOON, FixedClock
from contexture.types import PUBLIC, Scope
from support.workbench import workbench

ANNA = Scope(tenant="acme", user="anna", groups=("crew",))
OTHERS = (
    Scope(tenant="acme", user="boris"),
    Scope(tenant="other", user="anna", groups=("crew",)),
    Scope(tenant="other", user="boris"),
)
WORDS = st.lists(st.sampled_from("tea cake harbour ferry lamp river stone cloud паром чай".split()), min_size=1)

SETTINGS = settings(max_examples=25)


@st.composite
def memories(draw, prefix, readers):
    """A few memories with ids of their own."""
    count = draw(st.integers(0, 5))
    return [
        Memory(
            id=f"{prefix}-{number}",
            text=" ".join(draw(WORDS)),
            importance=draw(st.floats(0, 1)),
            session_id=draw(st.sampled_from(["", "s-1", "s-2"])),
            persona_id=draw(st.sampled_from(["", "p-1"])),
            tags=tuple(draw(st.lists(st.sampled_from("ab"), max_size=2))),
            kind=draw(st.sampled_from(list(MemoryKind))),
            ttl_seconds=draw(st.sampled_from([None, 1, 3_600])),
            idempotency_key=draw(st.sampled_from(["", "k-1", "k-2"])),
            readers=draw(readers),
            time=NOON - timedelta(days=draw(st.integers(0, 400))),
        )
        for number in range(count)
    ]


QUERIES = st.builds(
    Recall,
    query=WORDS.map(" ".join),
    now=st.just(NOON),
    top_k=st.integers(1, 6),
    threshold=st.sampled_from([0.0, 0.3, 0.5]),
    session_id=st.sampled_from(["", "s-1"]),
    persona_id=st.sampled_from(["", "p-1"]),
    tags=st.sampled_from([(), ("a",)]),
)
MINE = memories("mine", st.sampled_from([(), (PUBLIC,), ("group:crew",)]))
HIDDEN = st.tuples(*(memories(f"hidden-{at}", st.just((f"user:{other.user}",))) for at, other in enumerate(OTHERS)))


@pytest.fixture(scope="module")
def stores(lasting_folder):
    """Runs work on a memory service over a new store."""

    def run(work):
        folder = lasting_folder()

        async def inside():
            async with workbench(folder) as bench:
                service = partial(LocalMemory, index=bench.index, preparer=bench.preparer, search=bench.search)
                return await work(service(clock=FixedClock()))

        try:
            return asyncio.run(inside())
        finally:
            shutil.rmtree(folder)

    return run


async def spoken(memory, mine, query):
    """Everything one user is told: ids, recalls, counts, before and after feedback."""
    told = [await memory.remember(ANNA, [each]) for each in mine]
    told.append(await memory.recall(ANNA, query))
    for each in mine[:1]:
        await memory.feedback(ANNA, Feedback(memory_id=told[0][0], score=-1, time=each.time or NOON))
    told.append(await memory.recall(ANNA, query))
    told.append(await memory.forget(ANNA, ["mine-0", "hidden-0-0", "hidden-1-0", "hidden-2-0"]))
    return msgspec.json.encode(told)


@SETTINGS
@given(mine=MINE, hidden=HIDDEN, query=QUERIES)
def test_what_others_keep_to_themselves_changes_no_byte(stores, mine, hidden, query):
    """Ids, answers, scores and counts are the same with and without memories of other tenants and readers."""

    async def crowded(memory):
        for scope, kept in zip(OTHERS, hidden, strict=True):
            await memory.remember(scope, kept)
        return await spoken(memory, mine, query)

    assert stores(lambda memory: spoken(memory, mine, query)) == stores(crowded)


@SETTINGS
@given(mine=MINE, query=QUERIES)
def test_recall_keeps_to_what_was_asked(stores, mine, query):
    """At most so many, at or above the threshold, best first, each once, none expired, each piece inside its text."""

    async def work(memory):
        await memory.remember(ANNA, mine)
        return await memory.recall(ANNA, replace(query, now=NOON + timedelta(seconds=2)))

    found = stores(work)
    expired = {each.id for each in mine if each.ttl_seconds == 1}

    assert len(found) <= query.top_k
    assert all(query.threshold <= each.score <= 1 for each in found)
    assert [(-each.score, each.id) for each in found] == sorted((-each.score, each.id) for each in found)
    assert len({each.id for each in found}) == len(found)
    assert not expired & {each.id for each in found}
    assert all(0 <= piece.start < piece.end <= len(each.text) for each in found for piece in each.pieces)


@SETTINGS
@given(mine=MINE, given_scores=st.lists(st.floats(-1, 1), max_size=6), query=QUERIES)
def test_feedback_is_bounded(stores, mine, given_scores, query):
    """Whatever is said, and however often, a score moves by at most five hundredths."""

    async def work(memory):
        ids = await memory.remember(ANNA, mine)
        wide = replace(query, threshold=0.0, top_k=100)
        before = {each.id: each.score for each in await memory.recall(ANNA, wide)}
        for second, score in enumerate(given_scores):
            for each in set(ids):
                moment = NOON + timedelta(seconds=second)
                await memory.feedback(ANNA, Feedback(memory_id=each, score=score, time=moment))
        return before, {each.id: each.score for each in await memory.recall(ANNA, wide)}

    before, after = stores(work)

    assert before.keys() == after.keys()
    assert all(abs(before[each] - after[each]) <= 0.05 + 1e-9 for each in before)
