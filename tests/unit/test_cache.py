"""Remembered answers: how they are kept, and which writes they outlast."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from contexture.adapters.index.journal import WriteJournal
from contexture.ledger import Trace
from contexture.retrieval.search import CachedResult, FoundPassage, ResultCache, SearchCacheStats, SearchOptions
from contexture.types import PUBLIC, Equals, Record, Scope
from support.workbench import NAME, Parts, Workbench, workbench

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")
ROOT = Scope(tenant="acme", user="root")
READERS = (PUBLIC, "user:root")


def found(cache: ResultCache[str], key: str) -> CachedResult[str]:
    """What is remembered."""
    kept = cache.find(key)
    assert kept is not None
    return kept


def test_what_comes_late_neither_replaces_what_is_newer_nor_passes_for_it() -> None:
    """A slow search ends after a deletion, between reading what was remembered since and finding that it holds."""
    cache = ResultCache[str](size=8)
    cache.put("q", 2, "without it")
    verified = found(cache, "q")
    cache.put("q", 1, "with it")

    assert "without it" == found(cache, "q").result
    cache.put("q", 2, "computed twice")
    cache.record_hit("q", verified, 5)
    assert ("computed twice", 2) == (found(cache, "q").result, found(cache, "q").held)


def test_an_answer_is_found_with_its_versions() -> None:
    """What was put is found as it was put, until it is found to hold later."""
    cache = ResultCache[str](size=8)
    cache.put("q", 1, "answer")
    cache.record_hit("q", found(cache, "q"), 5)
    kept = cache.find("q")

    assert kept is not None
    assert ("answer", 1, 5) == (kept.result, kept.version, kept.held)
    assert cache.find("other") is None


def test_hits_and_misses_are_counted() -> None:
    """The rate is the share of hits, and 0 before the first question."""
    cache = ResultCache[str](size=8)

    assert 0.0 == cache.stats().rate
    cache.put("q", 1, "answer")
    cache.record_hit("q", found(cache, "q"), 1)
    cache.record_hit("q", found(cache, "q"), 1)
    cache.record_miss()
    assert SearchCacheStats(hits=2, misses=1) == cache.stats()
    assert pytest.approx(2 / 3) == cache.stats().rate


def test_the_least_recently_used_answer_makes_room() -> None:
    """A cache holds its size and forgets what was not asked for longest."""
    cache = ResultCache[str](size=2)
    for name in "ab":
        cache.put(name, 1, name)
    cache.record_hit("a", found(cache, "a"), 1)
    cache.put("c", 1, "c")

    assert [True, False, True] == [cache.find(name) is not None for name in "abc"]


def test_a_cache_of_no_size_keeps_nothing() -> None:
    """Size 0 switches it off."""
    cache = ResultCache[str](size=0)
    cache.put("q", 1, "answer")

    assert cache.find("q") is None


def test_a_journal_tells_each_reader_their_own_writes() -> None:
    """Records are named to those who may read them, or could, and to nobody else."""
    journal = WriteJournal()
    journal.record_write("acme", "things", 1, [("open", (PUBLIC,))])
    journal.record_write("acme", "things", 2, [("hers", ("user:anna",)), ("his", ("user:boris",))])

    assert ["hers", "open"] == journal.touched_since(ANNA, "things", 0)
    assert ["hers"] == journal.touched_since(ANNA, "things", 1)
    assert [] == journal.touched_since(Scope(tenant="globex", user="anna"), "things", 0)


def test_a_journal_says_when_it_has_forgotten() -> None:
    """Older than what is remembered is unknown; the writes of other readers push nothing out."""
    journal = WriteJournal(size=2)
    journal.record_write("acme", "things", 1, [("a", (PUBLIC,))])
    for seq in range(2, 9):
        journal.record_write("acme", "things", seq, [(f"h{seq}", ("user:boris",))])

    assert ["a"] == journal.touched_since(ANNA, "things", 0)
    assert journal.touched_since(BORIS, "things", 3) is None
    assert ["h7", "h8"] == journal.touched_since(BORIS, "things", 6)


def test_a_journal_forgets_those_who_wrote_longest_ago() -> None:
    """However many write, it remembers no more than it may; whose writes are gone is told so, and no one else."""
    journal = WriteJournal(size=4, most=6)
    for seq in range(1, 5):
        journal.record_write("acme", "things", seq, [(f"a{seq}", ("user:anna",))])
    journal.record_write("acme", "things", 5, [("b5", ("user:boris",))])
    journal.record_write("acme", "things", 6, [("a6", ("user:anna",)), ("r6", ("user:root",)), ("r7", ("user:root",))])

    assert ["a3", "a4", "a6"] == journal.touched_since(ANNA, "things", 2)
    assert [None, []] == [journal.touched_since(BORIS, "things", 4), journal.touched_since(BORIS, "things", 5)]
    journal.record_write("acme", "things", 8, [("b8", ("user:boris",))])
    assert [None, ["b8"]] == [journal.touched_since(BORIS, "things", 4), journal.touched_since(BORIS, "things", 5)]


def test_a_journal_of_many_readers_is_asked_only_for_ones_own() -> None:
    """What others write makes no answer slower: their tracks are never looked at."""
    journal = WriteJournal()
    for seq in range(1, 101):
        journal.record_write("acme", "things", seq, [(f"h{seq}", (f"user:{seq}", "user:root"))])
    journal.record_write("acme", "things", 101, [("hers", ("user:anna",))])

    assert 1 == len(journal._readable_tracks(ANNA, "things"))
    assert ["hers"] == journal.touched_since(ANNA, "things", 0)
    assert 100 == len(journal.touched_since(ROOT, "things", 0) or ())


@pytest.fixture
async def bench(new_folder: Callable[[], Path]) -> AsyncIterator[Workbench]:
    """A store of forty records, any number of which may change before answers are computed anew."""
    parts = Parts(cache=8, options=SearchOptions(lag=1.0, pool=4, channel_k=4))
    async with workbench(new_folder(), parts) as opened:
        texts = [f"The pump number{at} leaks near valve{at}." for at in range(20)]
        texts += [f"Tide table of harbour{at} and moon{at}." for at in range(20)]
        await opened.add(ROOT, [Record(id=f"r{at:02}", text=text, acl=READERS) for at, text in enumerate(texts)])
        yield opened


async def ask(bench: Workbench, question: str = "pump leaks", scope: Scope = ANNA) -> tuple[FoundPassage, ...]:
    """The answer to a question."""
    return await bench.search.search(scope, NAME, question, trace=Trace())


async def write(bench: Workbench, record_id: str, text: str, acl: tuple[str, ...] = READERS) -> None:
    """One record more, or one changed."""
    await bench.add(ROOT, [Record(id=record_id, text=text, acl=acl)])


async def test_an_answer_outlasts_a_write_about_something_else(bench: Workbench) -> None:
    """A record that cannot enter leaves the answer as it is."""
    first = await ask(bench)
    await write(bench, "new", "Harbours see the moon and the tide in winter twilight.")

    assert first is await ask(bench)
    assert 1 == bench.search.cache_stats().hits


async def test_an_answer_ends_with_a_write_that_enters_it(bench: Workbench) -> None:
    """A better record is in the next answer."""
    await ask(bench)
    await write(bench, "new", "Pump leaks, pump leaks.")

    assert "new" in [each.hit.record.id for each in await ask(bench)]


async def test_an_answer_ends_when_one_of_its_records_changes(bench: Workbench) -> None:
    """What was in it is shown as it now stands."""
    first = await ask(bench)
    await write(bench, first[0].hit.record.id, "Nothing of the sort.")

    assert first[0].hit.record.id not in [each.hit.record.id for each in await ask(bench)]


async def test_an_answer_ends_when_one_of_its_records_is_removed(bench: Workbench) -> None:
    """Deletions never lag."""
    first = await ask(bench)
    await bench.index.delete(ROOT, NAME, [first[0].hit.record.id])

    assert first[0].hit.record.id not in [each.hit.record.id for each in await ask(bench)]


async def test_an_answer_ends_when_a_record_is_hidden(bench: Workbench) -> None:
    """Permissions never lag."""
    first = await ask(bench)
    await write(bench, first[0].hit.record.id, "The pump leaks.", acl=("user:root",))

    assert first[0].hit.record.id not in [each.hit.record.id for each in await ask(bench)]


async def test_hidden_writes_change_no_answer_and_no_count(bench: Workbench) -> None:
    """What a user may not read neither ends their answers nor shows in how often those were remembered."""
    first = await ask(bench)
    for at in range(30):
        await write(bench, f"hidden{at}", "Pump leaks, pump leaks.", acl=("user:root",))

    assert first is await ask(bench)
    assert (1, 1) == (bench.search.cache_stats().hits, bench.search.cache_stats().misses)


async def test_a_filter_keeps_writes_out(bench: Workbench) -> None:
    """A record that the question's filter does not admit cannot enter its answer."""
    asked = {"where": Equals("id", "r03"), "trace": Trace()}
    first = await bench.search.search(ANNA, NAME, "pump leaks", **asked)
    await write(bench, "new", "Pump leaks, pump leaks.")

    assert first is await bench.search.search(ANNA, NAME, "pump leaks", **asked)


async def test_an_answer_is_computed_anew_after_its_share_of_changes(new_folder: Callable[[], Path]) -> None:
    """Beyond the share that may change, an answer is not trusted, even if nothing could enter it."""
    async with workbench(new_folder(), Parts(cache=8, options=SearchOptions(lag=0.0))) as bench:
        await write(bench, "a", "The pump leaks.")
        first = await ask(bench)
        await write(bench, "b", "Tide tables of the harbour in winter twilight.")

        assert first is not await ask(bench)


async def test_an_answer_ends_with_a_write_that_pushes_others_out(new_folder: Callable[[], Path]) -> None:
    """A record that only one channel proposes enters when it pushes the last of the pool out of that channel."""
    parts = Parts(cache=8, options=SearchOptions(lag=1.0, pool=3, channel_k=3))
    async with workbench(new_folder(), parts) as bench:
        texts = ["pump valve"] * 6 + [f"tide of harbour{at}" for at in range(6)]
        await bench.add(ROOT, [Record(id=f"r{at:02}", text=text, acl=READERS) for at, text in enumerate(texts)])
        await ask(bench, "pump valve")
        await write(bench, "new", "valve task pump valve task pump valve pump valve")

        assert "new" in [each.hit.record.id for each in await ask(bench, "pump valve")]


async def test_an_answer_outlasts_its_share_of_changes_and_no_more(new_folder: Callable[[], Path]) -> None:
    """Of forty records two may change where the share is a twentieth; the third change ends the answer."""
    parts = Parts(cache=8, options=SearchOptions(lag=0.05, pool=4, channel_k=4))
    async with workbench(new_folder(), parts) as bench:
        texts = ["pump valve"] * 6 + [f"tide of harbour{at}" for at in range(34)]
        await bench.add(ROOT, [Record(id=f"r{at:02}", text=text, acl=READERS) for at, text in enumerate(texts)])
        first = await ask(bench, "pump valve")
        for name in ("a", "b"):
            await write(bench, name, "The moon over the meadow in winter twilight.")
        held = await ask(bench, "pump valve")
        await write(bench, "c", "The moon over the meadow in winter twilight.")

        assert first is held
        assert first is not await ask(bench, "pump valve")


async def test_an_answer_ends_with_writes_that_make_its_term_lighter(new_folder: Callable[[], Path]) -> None:
    """Records that score less than the answer did, because they make its term common, enter where they now lead."""
    parts = Parts(cache=8, options=SearchOptions(lag=1.0, pool=4, channel_k=4))
    async with workbench(new_folder(), parts) as bench:
        texts = ["pump"] * 6 + [f"tide of harbour{at}" for at in range(34)]
        await bench.add(ROOT, [Record(id=f"r{at:02}", text=text, acl=READERS) for at, text in enumerate(texts)])
        first = await ask(bench, "pump")
        text = "pump pump pump beside the old grey tower above seven wide meadows"
        await bench.add(ROOT, [Record(id=f"new{at}", text=text, acl=READERS) for at in range(3)])
        now = {each.hit.record.id: each.signals["bm25"] for each in await ask(bench, "pump")}

        assert "new0" in now
        assert now["new0"] < min(each.signals["bm25"] for each in first)


async def test_an_answer_ends_with_more_writes_than_a_channel_proposes(new_folder: Callable[[], Path]) -> None:
    """How much a term loses is known only if all that share it are seen; a channel proposes no more than four."""
    parts = Parts(cache=8, options=SearchOptions(lag=1.0, pool=4, channel_k=4))
    async with workbench(new_folder(), parts) as bench:
        texts = ["pump"] * 6 + [f"tide of harbour{at}" for at in range(34)]
        await bench.add(ROOT, [Record(id=f"r{at:02}", text=text, acl=READERS) for at, text in enumerate(texts)])
        first = await ask(bench, "pump")
        text = "pump pump beside the old grey tower above seven wide meadows"
        await bench.add(ROOT, [Record(id=f"new{at:02}", text=text, acl=READERS) for at in range(12)])
        now = {each.hit.record.id: each.signals["bm25"] for each in await ask(bench, "pump")}

        assert "new00" in now
        assert now["new00"] < min(each.signals["bm25"] for each in first)
