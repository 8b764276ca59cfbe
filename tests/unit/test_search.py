"""Hybrid search over the embedded index with small deterministic embedders."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from contexture.errors import InvalidRequest, UnknownCollection
from contexture.ledger import Trace
from contexture.retrieval.search import FoundPassage, SearchOptions
from contexture.testing.doubles import FailingEmbedder, FailingReranker, HashEmbedder, OverlapReranker
from contexture.types import PUBLIC, Equals, Matrix, Record, Scope
from support.workbench import NAME, Parts, Workbench, workbench

ANNA = Scope.local()
TEXTS = {
    "pump": "The pump leaks near the valve.",
    "valve": "A valve closes the pipe.",
    "tides": "High water is at nine.",
    "насос": "Насос течёт возле клапана.",
}


@pytest.fixture
async def bench(new_folder: Callable[[], Path]) -> AsyncIterator[Workbench]:
    """A workbench with four records."""
    async with workbench(new_folder(), Parts(cache=8)) as opened:
        await opened.add(ANNA, [Record(id=name, text=text, acl=(PUBLIC,)) for name, text in TEXTS.items()])
        yield opened


class Noting(HashEmbedder):
    """An embedder that notes what it was asked for."""

    def __init__(self, dimensions: int, name: str) -> None:
        super().__init__(dimensions, name)
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """As the other does."""
        self.texts += texts
        return await super().embed(texts)


def names(found: tuple[FoundPassage, ...]) -> list[str]:
    """Record ids, best first."""
    return [each.hit.record.id for each in found]


async def test_shared_words_match(bench: Workbench) -> None:
    """Records that share a term are found, best first, with every signal between 0 and 1 or raw."""
    found = await bench.search.search(ANNA, NAME, "leaking pumps and a valve", trace=Trace())

    assert "pump" == names(found)[0]
    assert 1.0 == found[0].signals["lexical"] >= found[0].score > found[-1].score > 0
    assert {"bm25", "lexical", "semantic", "neighbour"} <= set(found[0].signals)


async def test_nothing_found_can_happen(new_folder: Callable[[], Path]) -> None:
    """Without a shared term and below the floor of similarity there is no match."""
    async with workbench(new_folder(), Parts(options=SearchOptions(floor=1.0))) as bench:
        await bench.add(ANNA, [Record(id="a", text="High water is at nine.", acl=(PUBLIC,))])

        assert () == await bench.search.search(ANNA, NAME, "unrelated question", trace=Trace())


async def test_a_filter_narrows_the_answer(bench: Workbench) -> None:
    """Only records that pass are found."""
    found = await bench.search.search(ANNA, NAME, "pump valve", where=Equals("id", "valve"), trace=Trace())

    assert ["valve"] == names(found)


async def test_the_pool_bounds_the_answer(bench: Workbench) -> None:
    """At most as many passages as asked for come back, and fewer than one cannot be asked for."""
    assert 1 == len(await bench.search.search(ANNA, NAME, "pump valve", pool=1, trace=Trace()))
    with pytest.raises(InvalidRequest, match="at least 1"):
        await bench.search.search(ANNA, NAME, "pump", pool=-1, trace=Trace())


async def test_an_unknown_collection_is_the_callers_mistake(bench: Workbench) -> None:
    """It is raised, not degraded."""
    with pytest.raises(UnknownCollection):
        await bench.search.search(ANNA, "nowhere", "pump", trace=Trace())


async def test_a_repeated_question_is_answered_from_memory(bench: Workbench) -> None:
    """Until something is written; the answer then includes it."""
    first = await bench.search.search(ANNA, NAME, "pump", trace=Trace())
    again = await bench.search.search(ANNA, NAME, "pump", trace=Trace())
    await bench.add(ANNA, [Record(id="new", text="Another pump.", acl=(PUBLIC,))])
    later = await bench.search.search(ANNA, NAME, "pump", trace=Trace())

    assert first is again
    assert "new" not in names(first)
    assert "new" in names(later)
    assert (1, 2) == (bench.search.cache_stats().hits, bench.search.cache_stats().misses)


async def test_answers_are_not_shared_between_users(bench: Workbench) -> None:
    """The same question by another user is another question."""
    await bench.add(ANNA, [Record(id="mine", text="My own pump.", acl=("user:local",))])
    mine = await bench.search.search(ANNA, NAME, "pump", trace=Trace())
    theirs = await bench.search.search(Scope(tenant="local", user="boris"), NAME, "pump", trace=Trace())

    assert ("mine" in names(mine), "mine" in names(theirs)) == (True, False)


@pytest.mark.parametrize("healthy", [2, 3])
async def test_a_failing_embedder_leaves_words(healthy: int, new_folder: Callable[[], Path]) -> None:
    """Search degrades to BM25, says so every time, and does not remember the lesser answer."""
    parts = Parts(english=FailingEmbedder(16, "hash-en", healthy=1), foreign=HashEmbedder(12, "hash-any"), cache=8)
    async with workbench(new_folder(), parts) as bench:
        await bench.add(ANNA, [Record(id=name, text=text, acl=(PUBLIC,)) for name, text in TEXTS.items()])
        for _ in range(healthy):
            trace = Trace()
            found = await bench.search.search(ANNA, NAME, "pump valve", trace=trace)

            assert {"pump", "valve"} == set(names(found))
            assert "semantic" not in found[0].signals
            assert ["embedder"] == [each.source for each in trace.finish([]).degradations]
        assert 0 == bench.search.cache_stats().hits


async def test_a_reranker_has_a_say(new_folder: Callable[[], Path]) -> None:
    """Its score is a signal, and moves what shares more of the question up."""
    async with workbench(new_folder(), Parts(reranker=OverlapReranker())) as bench:
        await bench.add(ANNA, [Record(id=name, text=text, acl=(PUBLIC,)) for name, text in TEXTS.items()])
        found = await bench.search.search(ANNA, NAME, "pump valve", trace=Trace())

    assert "pump" == names(found)[0]
    assert [1.0, 0.5] == [each.signals["overlap"] for each in found[:2]]
    assert names(found) == names(tuple(sorted(found, key=lambda each: -each.score)))


async def test_a_failing_reranker_changes_nothing(new_folder: Callable[[], Path]) -> None:
    """The order stays as it was, the loss is named, and the answer is not remembered."""
    parts = Parts(reranker=FailingReranker(), cache=8)
    async with workbench(new_folder(), parts) as bench:
        await bench.add(ANNA, [Record(id=name, text=text, acl=(PUBLIC,)) for name, text in TEXTS.items()])
        plain = Workbench(bench.index, Parts()).search
        expected = names(await plain.search(ANNA, NAME, "pump valve", trace=Trace()))
        for _ in range(2):
            trace = Trace()
            assert expected == names(await bench.search.search(ANNA, NAME, "pump valve", trace=trace))
            assert ["reranker"] == [each.source for each in trace.finish([]).degradations]


async def test_a_failing_embedder_is_not_hidden_by_a_working_reranker(new_folder: Callable[[], Path]) -> None:
    """What was found without vectors is not remembered as if it were whole."""
    parts = Parts(english=FailingEmbedder(16, "hash-en", healthy=1), reranker=OverlapReranker(), cache=8)
    async with workbench(new_folder(), parts) as bench:
        await bench.add(ANNA, [Record(id="pump", text=TEXTS["pump"], acl=(PUBLIC,))])
        for _ in range(2):
            trace = Trace()
            await bench.search.search(ANNA, NAME, "pump", trace=trace)
            assert ["embedder"] == [each.source for each in trace.finish([]).degradations]


@pytest.mark.parametrize(("position", "lifted"), [(2, True), (5, False)])
async def test_the_next_turn_of_a_dialogue_is_lifted(
    new_folder: Callable[[], Path], *, position: int, lifted: bool
) -> None:
    """A record beside a good match in its session gains from it; one further away does not."""
    turns = [("question", 1, "pump leaks"), ("answer", position, "valve pump open")]
    async with workbench(new_folder()) as bench:
        records = [Record(id=name, text=text, acl=(PUBLIC,), session="s", position=at) for name, at, text in turns]
        await bench.add(ANNA, records)
        found = await bench.search.search(ANNA, NAME, "pump leaks", trace=Trace())

    gains = {each.hit.record.id: each.signals["neighbour"] for each in found}
    assert lifted is (gains["answer"] > 0)


async def test_the_name_of_a_speaker_counts_less_than_what_is_asked(new_folder: Callable[[], Path]) -> None:
    """A greeting that has only the name scores nothing without it; questions that need no such signal have none."""
    turns = [
        ("greeting", "s", 0, {"speaker": "Bob"}, "Hello Vera, dear Vera"),
        ("answer", "s", 4, {"speaker": "Vera"}, "The pump leaks near our old garden shed"),
    ]
    async with workbench(new_folder()) as bench:
        records = [
            Record(id=name, text=text, acl=(PUBLIC,), session=session, position=at, payload=payload)
            for name, session, at, payload, text in turns
        ]
        await bench.add(ANNA, [*records, Record(id="note", text="Vera owns a pump", acl=(PUBLIC,))])
        found = await bench.search.search(ANNA, NAME, "Where does Vera's pump leak?", trace=Trace())
        other = await bench.search.search(ANNA, NAME, "Where does the pump leak?", trace=Trace())
        alone = await bench.search.search(ANNA, NAME, "Vera?", trace=Trace())

    signals = {each.hit.record.id: each.signals for each in found}
    assert 0.0 == signals["greeting"]["lexical_unnamed"] < signals["greeting"]["lexical"]
    assert 1.0 == signals["answer"]["lexical_unnamed"] > signals["answer"]["lexical"]
    assert "lexical_unnamed" not in signals["note"]
    assert not any("lexical_unnamed" in each.signals for each in (*other, *alone))


async def test_neighbouring_passages_of_a_record_lift_each_other(new_folder: Callable[[], Path]) -> None:
    """The passage after a good one gains; a record of a single passage gains nothing."""
    async with workbench(new_folder(), Parts(passage=20)) as bench:
        long = "The pump leaks here. The pump stands there."
        await bench.add(
            ANNA, [Record(id="long", text=long, acl=(PUBLIC,)), Record(id="short", text="A pump.", acl=(PUBLIC,))]
        )
        found = await bench.search.search(ANNA, NAME, "pump leaks", trace=Trace())

    gains = {(each.hit.record.id, each.hit.ordinal): each.signals["neighbour"] for each in found}
    assert gains["long", 1] > 0 == gains["short", 0]


async def test_a_question_is_embedded_only_for_what_may_be_read(new_folder: Callable[[], Path]) -> None:
    """An English question over English records needs no other embedder; what is hidden does not count."""
    foreign = Noting(12, "hash-any")
    async with workbench(new_folder(), Parts(foreign=foreign)) as bench:
        await bench.add(ANNA, [Record(id="pump", text="The pump leaks.", acl=(PUBLIC,))])
        await bench.add(ANNA, [Record(id="насос", text="Насос течёт.", acl=("group:repairs",))])
        foreign.texts.clear()
        mine = await bench.search.search(ANNA, NAME, "which pump leaks", trace=Trace())
        unasked = list(foreign.texts)
        repairs = Scope(tenant=ANNA.tenant, user=ANNA.user, groups=("repairs",))
        await bench.search.search(repairs, NAME, "which pump leaks", trace=Trace())

    assert ["pump"] == names(mine)
    assert ([], ["which pump leaks"]) == (unasked, foreign.texts)


async def test_a_remembered_answer_ends_with_the_first_record_of_another_language(
    new_folder: Callable[[], Path],
) -> None:
    """When it was computed nobody looked there."""
    foreign = Noting(12, "hash-any")
    async with workbench(new_folder(), Parts(foreign=foreign, cache=8, options=SearchOptions(lag=1.0))) as bench:
        await bench.add(ANNA, [Record(id="pump", text="The pump leaks.", acl=(PUBLIC,))])
        await bench.search.search(ANNA, NAME, "which pump leaks", trace=Trace())
        await bench.add(ANNA, [Record(id="tides", text="High water is at nine.", acl=(PUBLIC,))])
        foreign.texts.clear()
        await bench.search.search(ANNA, NAME, "which pump leaks", trace=Trace())
        outlasted = bench.search.cache_stats().hits
        await bench.add(ANNA, [Record(id="насос", text="Насос течёт.", acl=(PUBLIC,))])
        foreign.texts.clear()
        await bench.search.search(ANNA, NAME, "which pump leaks", trace=Trace())

    assert 1 == outlasted == bench.search.cache_stats().hits
    assert ["which pump leaks"] == foreign.texts
