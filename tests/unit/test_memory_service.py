"""The memory service in process: what it asks the index, what it stores, what moves its ranking."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from contexture.conversation import JOINED, Feedback, Memory, MemoryKind, Recall
from contexture.errors import InvalidRequest, NotFound, SourceUnavailable
from contexture.memory import service
from contexture.memory.records import ALIAS_KIND, MEMORIES, find_echo
from contexture.memory.service import HINT_WEIGHTS, LocalMemory
from contexture.retrieval.message_context import MessageContexts
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch
from contexture.testing.doubles import NOON, FailingEmbedder, FixedClock, WordCounter
from contexture.types import PUBLIC, And, AnyOf, Equals, Not, Range, Record, Scope
from support.memory_conformance import RecordingIndex, asking
from support.workbench import HIDDEN, Parts, workbench

ANNA = Scope(tenant="acme", user="anna")
NAME = MEMORIES.name


class Bench:
    """A memory service over a store that notes what it is asked."""

    def __init__(self, bench, parts):
        self.index = RecordingIndex(bench.index)
        self.clock = FixedClock()
        self.memory = self.service(parts)

    def service(self, parts, clock=None):
        """Another service over the same store."""
        preparer = Preparer(encoders=parts.encoders, counters=[WordCounter()], redactor=parts.redactor, target=60)
        search = HybridSearch(index=self.index, encoders=parts.encoders)
        return LocalMemory(
            index=self.index,
            preparer=preparer,
            search=search,
            clock=clock or FixedClock(),
            counters=[WordCounter()],
        )


@pytest.fixture
async def bench(new_folder):
    """A service over doubles."""
    parts = Parts()
    async with workbench(new_folder(), parts) as inner:
        yield Bench(inner, parts)


@pytest.fixture
def memory(bench):
    """The service itself."""
    return bench.memory


async def texts(memory, query, scope=ANNA):
    """What is recalled, best first."""
    return [found.text for found in await memory.recall(scope, query)]


async def test_tenant_and_filters_are_in_the_query_itself(bench):
    """The index is asked for this tenant, namespace and universe and what is not expired; nothing is sifted later."""
    query = Recall(query="tea", now=NOON + timedelta(seconds=30), namespace="wm", sessions=("s",), personas=("p",),
                   tags=("t",), kinds=(MemoryKind.SEMANTIC,))  # fmt: skip
    await bench.memory.recall(ANNA, query)
    ((scope, asked),) = bench.index.searches

    assert scope == ANNA
    assert asked.collection == "memories"
    assert asked.where == And(
        (
            Equals("namespace", "wm"),
            Equals("universe", ""),
            Not(Range(field="expires", lte=NOON)),
            AnyOf("session", ("s",)),
            AnyOf("persona", ("p",)),
            AnyOf("tags", ("t",)),
            AnyOf("kind", ("semantic",)),
        )
    )


async def test_every_call_to_the_index_carries_the_scope(bench):
    """Writing, recalling, rating and forgetting all name who asks."""
    (written,) = await bench.memory.remember(ANNA, [Memory(text="tea", id="m")])
    await bench.memory.recall(ANNA, asking("tea"))
    await bench.memory.feedback(ANNA, Feedback(memory_id=written, score=1, time=NOON))
    await bench.memory.forget(ANNA, [written])
    index = bench.index

    assert {ANNA} == {scope for scope, _ in (*index.searches, *index.reads, *index.writes)}


async def test_facts_about_the_whole_text_are_stored_with_it(memory):
    """Sentences, redactions, tokens and hash of a memory of several passages are computed when it is written."""
    text = f"The harbour opens at six. The word is {HIDDEN} today. " * 3
    await memory.remember(ANNA, [Memory(text=text)])
    (found,) = await memory.recall(ANNA, asking("when does the harbour open"))

    assert text.strip().startswith(found.text[slice(*found.sentences[0])])
    assert [HIDDEN] * 3 == [found.text[span.start : span.end] for span in found.redactions]
    assert found.rules == "words-1"
    assert found.tokens == {"words": len(text.split())}
    assert found.simhash
    assert len(found.pieces) > 1
    assert all(found.text[piece.start : piece.end] for piece in found.pieces)
    assert [piece.score for piece in found.pieces] == sorted((p.score for p in found.pieces), reverse=True)


async def test_signals_add_up_to_the_score(memory):
    """The score is the relevance plus what each hint adds."""
    await memory.remember(ANNA, [Memory(text="tea", importance=1.0, session_id="s", persona_id="p")])
    (found,) = await memory.recall(ANNA, replace(asking("tea in the garden"), session_id="s", persona_id="p"))

    hints = {name: found.signals[name] for name in HINT_WEIGHTS}
    assert hints == {"importance": 0.05, "feedback": 0.0, "session": 0.03, "persona": 0.02}
    assert found.score == pytest.approx(found.signals["relevance"] + 0.1)


async def test_importance_orders_what_is_equally_relevant(memory):
    """Of two alike, the important one comes first, by a tenth at most."""
    await memory.remember(ANNA, [Memory(text="tea", id="a", importance=0), Memory(text="tea", id="b", importance=1)])
    first, second = await memory.recall(ANNA, asking("tea and cake"))

    assert (first.id, second.id) == ("b", "a")
    assert first.score - second.score == pytest.approx(0.1)


async def test_of_equally_relevant_memories_the_newer_comes_first(memory):
    """Equal scores are ordered by time before they are ordered by id."""
    said = [Memory(id=f"m-{at}", text="the pump leaks", time=NOON - timedelta(days=at)) for at in (2, 1, 3)]
    await memory.remember(ANNA, said)

    found = await memory.recall(ANNA, asking("pump leaks"))

    assert ["m-1", "m-2", "m-3"] == [each.id for each in found]
    assert 1 == len({each.score for each in found})


def _session(*lines, scope=ANNA, **fields):
    return [
        Memory(id=f"{scope.user}-{at}", text=text, session_id="s", metadata={"position": at}, **fields)
        for at, text in enumerate(lines)
    ]


async def test_another_word_for_the_same_attribute_is_found(memory):
    """Who asks where somebody lives hears where they moved, and in either language."""
    said = ("We moved to Bergen last week.", "Я переехала в Пермь.", "We sold the boat.")
    await memory.remember(ANNA, [Memory(text=text) for text in said])

    found = await texts(memory, Recall(query="Where do we live?", now=NOON))

    assert set(said[:2]) == set(found)


async def test_a_question_for_everything_about_the_user_recalls_the_newest(memory):
    """Nothing they said has a word of it; with a threshold it is a question like any other."""
    said = [Memory(text=f"I own {at} boats.", time=NOON - timedelta(days=100 * at)) for at in range(4)]
    await memory.remember(ANNA, [*said, Memory(text="Gone by now.", time=NOON - timedelta(days=1), ttl_seconds=1)])
    query = Recall(query="What do you know about me?", now=NOON + timedelta(hours=1), top_k=3, threshold=0.0)

    assert [each.text for each in said[:3]] == await texts(memory, query)
    assert [] == await texts(memory, replace(query, threshold=0.5))
    assert [] == await texts(memory, query, Scope(tenant="acme", user="boris"))


async def test_the_messages_beside_a_memory_join_it_when_asked_for(memory):
    """Those next to it in its session, behind everything that is recalled, and only those that may be read."""
    boris = Scope(tenant="acme", user="boris")
    lines = ("Tomorrow is a holiday.", "Boris comes along.", "We sail to Bergen.", "With her children.", "It rains.")
    await memory.remember(ANNA, _session(*lines))
    await memory.remember(boris, _session("My own.", scope=boris))
    query = asking("sail to Bergen", threshold=0.5)

    alone = await memory.recall(ANNA, query)
    joined = await memory.recall(ANNA, replace(query, neighbours=1))

    assert [lines[2]] == [each.text for each in alone]
    assert [lines[2], lines[1], lines[3]] == [each.text for each in joined]
    assert [JOINED in each.signals for each in joined] == [False, True, True]


async def test_statements_of_neighbouring_turns_of_a_chat_join_too(memory):
    """Those of the same turn and of the ones before and after it."""
    lines = (("We sail to Bergen.", 2), ("With her children.", 2), ("Boris comes along.", 3), ("It rains.", 4))
    said = [Memory(text=text, session_id="s", metadata={"turn": turn}) for text, turn in lines]
    await memory.remember(ANNA, [*said, Memory(text="In another session.", session_id="t", metadata={"turn": 2})])

    joined = await texts(memory, replace(asking("sail to Bergen", threshold=0.5), neighbours=1))

    assert lines[0][0] == joined[0]
    assert {text for text, _ in lines[:3]} == set(joined)


async def test_neighbours_that_cannot_be_read_are_missed_alone(bench, monkeypatch):
    """The memories beside which they stand are recalled all the same."""
    await bench.memory.remember(ANNA, _session("Boris comes along.", "We sail to Bergen."))

    async def fails(*_, **__):
        raise SourceUnavailable("gone")

    monkeypatch.setattr(MessageContexts, "find_at", fails)

    query = Recall(query="sail to Bergen", now=NOON, threshold=0.5, neighbours=1)
    assert ["We sail to Bergen."] == await texts(bench.memory, query)


async def test_feedback_is_averaged_per_reader_and_then_over_readers(memory):
    """One reader's hundred complaints weigh as much as another's single praise."""
    (written,) = await memory.remember(ANNA, [Memory(text="tea", readers=(PUBLIC,))])
    boris = Scope(tenant="acme", user="boris")
    for second in range(4):
        given = Feedback(memory_id=written, score=-1, time=NOON + timedelta(seconds=second))
        await memory.feedback(ANNA, given)
    await memory.feedback(boris, Feedback(memory_id=written, score=1, time=NOON))
    (found,) = await memory.recall(ANNA, asking("tea"))

    assert found.signals["feedback"] == 0


async def test_the_same_feedback_sent_twice_counts_once(bench):
    """A retry changes nothing and writes nothing."""
    (written,) = await bench.memory.remember(ANNA, [Memory(text="tea")])
    given = Feedback(memory_id=written, score=0.5, time=NOON)
    await bench.memory.feedback(ANNA, given)
    writes = len(bench.index.writes)
    await bench.memory.feedback(ANNA, given)

    assert len(bench.index.writes) == writes


async def test_who_gave_feedback_is_told_to_nobody(memory):
    """Readers see the effect, never the opinions."""
    (written,) = await memory.remember(ANNA, [Memory(text="tea", readers=(PUBLIC,))])
    await memory.feedback(ANNA, Feedback(memory_id=written, score=1, time=NOON))
    (found,) = await memory.recall(Scope(tenant="acme", user="boris"), asking("tea"))

    assert "anna" not in repr(found)


async def test_writing_the_same_memory_again_writes_nothing(bench):
    """An id with the same content is left alone; with other content it is replaced and keeps its feedback."""
    once = Memory(text="tea", id="m", time=NOON)
    await bench.memory.remember(ANNA, [once])
    await bench.memory.feedback(ANNA, Feedback(memory_id="m", score=1, time=NOON))
    writes = len(bench.index.writes)
    await bench.memory.remember(ANNA, [once])
    assert len(bench.index.writes) == writes

    await bench.memory.remember(ANNA, [replace(once, text="green tea")])
    (found,) = await bench.memory.recall(ANNA, asking("tea"))
    assert (found.text, found.signals["feedback"]) == ("green tea", 0.05)


async def test_an_id_of_somebody_else_names_another_memory(memory):
    """Nobody can replace a private memory that they may not read, or learn that its id is in use."""
    boris = Scope(tenant="acme", user="boris")
    await memory.remember(ANNA, [Memory(text="tea", id="m")])

    await memory.remember(boris, [Memory(text="tea is mine now", id="m")])

    query = Recall(query="tea", now=NOON)
    assert (["tea"], ["tea is mine now"]) == (await texts(memory, query), await texts(memory, query, boris))


async def test_a_key_used_by_two_users_keeps_their_memories_apart(memory):
    """Private memories with one key are two; public ones are one."""
    boris = Scope(tenant="acme", user="boris")
    private = Memory(text="tea", idempotency_key="k")
    public = Memory(text="tea", idempotency_key="p", readers=(PUBLIC,))

    assert await memory.remember(ANNA, [private]) != await memory.remember(boris, [private])
    assert await memory.remember(ANNA, [public]) == await memory.remember(boris, [public])


async def test_who_writes_for_others_neither_learns_of_their_keys_nor_takes_them(memory):
    """A memory for somebody else goes under a key of its writer."""
    boris = Scope(tenant="acme", user="boris")
    (mine,) = await memory.remember(ANNA, [Memory(text="the takeover", idempotency_key="k")])
    (his,) = await memory.remember(boris, [Memory(text="x", idempotency_key="k", readers=("user:anna",))])
    await memory.remember(boris, [Memory(text="y", idempotency_key="later", readers=(PUBLIC,))])
    (later,) = await memory.remember(ANNA, [Memory(text="the merger", idempotency_key="later")])

    assert mine != his
    assert "the merger" in await texts(memory, asking("the merger"))
    assert [later] == list(await memory.remember(ANNA, [Memory(text="the merger", idempotency_key="later")]))


async def test_an_opinion_of_a_memory_that_is_forgotten_meanwhile_does_not_bring_it_back(bench, monkeypatch):
    """Another process forgets it, or takes readers away, between reading and writing."""
    await bench.memory.remember(ANNA, [Memory(text="tea", id="m"), Memory(text="rum", id="n", readers=(PUBLIC,))])
    elsewhere, prepare, meanwhile = bench.service(Parts()), bench.memory._prepare, []

    async def slow(scope, records):
        if not meanwhile:
            meanwhile.append("done")
            await elsewhere.forget(ANNA, ["m"])
            await elsewhere.remember(ANNA, [Memory(text="rum", id="n", readers=("user:anna",))])
        return await prepare(scope, records)

    monkeypatch.setattr(bench.memory, "_prepare", slow)
    with pytest.raises(NotFound):
        await bench.memory.feedback(ANNA, Feedback(memory_id="m", score=1, time=NOON))
    meanwhile.clear()
    await elsewhere.remember(ANNA, [Memory(text="rum", id="n", readers=(PUBLIC,))])
    await bench.memory.feedback(ANNA, Feedback(memory_id="n", score=1, time=NOON))
    (kept,) = await bench.index.get(ANNA, NAME, ["n"])

    assert ["n"] == await _stored(bench)
    assert (("user:anna",), True) == (kept.acl, "feedback" in kept.payload)


async def test_expired_memories_are_purged_for_real(bench):
    """A purge removes what has lived its time, with its key, counts it, and leaves the rest."""
    await bench.memory.remember(
        ANNA,
        [
            Memory(text="tea one", id="one", ttl_seconds=60, idempotency_key="k"),
            Memory(text="tea two", id="two", ttl_seconds=600),
            Memory(text="tea three", id="three"),
        ],
    )
    later = bench.service(Parts(), FixedClock(NOON + timedelta(seconds=60)))

    assert await later.purge(ANNA) == 1
    assert ["three", "two"] == [record.id for record in await bench.index.scroll(ANNA, NAME)]
    assert await later.purge(ANNA) == 0


async def test_a_key_that_leads_elsewhere_by_now_outlives_its_first_memory(bench):
    """Purging an expired memory does not let a later one with its key be stored twice."""
    await bench.memory.remember(ANNA, [Memory(text="tea one", id="one", ttl_seconds=60, idempotency_key="k")])
    later = bench.service(Parts(), FixedClock(NOON + timedelta(seconds=60)))
    again = Memory(text="tea two", id="two", idempotency_key="k")
    await later.remember(ANNA, [again])
    await later.purge(ANNA)

    assert ["two"] == await _stored(bench)
    assert ["two"] == list(await later.remember(ANNA, [replace(again, id="three")]))


async def test_writing_removes_what_has_expired_a_few_at_a_time(bench, monkeypatch):
    """Nobody has to call `purge`: once a minute a write looks at the next few memories, round and round."""
    monkeypatch.setattr(service, "SWEEP_BATCH", 8)
    await bench.memory.remember(ANNA, [Memory(text=f"tea {at}", id=f"old-{at:02}", ttl_seconds=60) for at in range(12)])
    moments = iter(NOON + timedelta(seconds=each) for each in (60, 119, 120, 180))
    later = bench.service(Parts(), SimpleNamespace(now=lambda: next(moments)))
    left = []
    for number in range(4):
        await later.remember(ANNA, [Memory(text=f"new {number}", id=f"new-{number}")])
        left.append(sum(name.startswith("old") for name in await _stored(bench)))

    assert left == [5, 5, 0, 0]  # the first new memory is one of the eight that were looked at
    assert {scope for scope, _ in bench.index.scrolls} == {ANNA}


async def test_a_sweep_that_fails_does_not_undo_the_write(bench, monkeypatch):
    """What was to be remembered is stored; what has expired is removed another time."""

    async def fails(*_, **__):
        raise SourceUnavailable("disk")

    with monkeypatch.context() as broken:
        broken.setattr(bench.index.index, "scroll", fails)
        assert ["m"] == list(await bench.memory.remember(ANNA, [Memory(text="tea", id="m")]))

    assert ["m"] == await _stored(bench)


async def _stored(bench):
    """The ids of the memories in the store, without aliases."""
    records = await bench.index.index.scroll(ANNA, NAME, limit=1_000)
    return [record.id for record in records if record.kind != ALIAS_KIND]


async def test_an_expired_memory_cannot_be_rated_or_counted(bench):
    """To its readers it is gone before it is purged."""
    await bench.memory.remember(ANNA, [Memory(text="tea", id="m", ttl_seconds=60)])
    later = bench.service(Parts(), FixedClock(NOON + timedelta(seconds=61)))

    with pytest.raises(NotFound):
        await later.feedback(ANNA, Feedback(memory_id="m", score=1, time=NOON))
    assert await later.forget(ANNA, ["m"]) == 0


async def test_an_alias_of_a_key_is_no_memory(bench):
    """Nothing that only leads to a memory can be rated or counted."""
    await bench.memory.remember(ANNA, [Memory(text="tea", id="m", idempotency_key="k")])
    (alias,) = {record.id for record in await bench.index.scroll(ANNA, NAME)} - {"m"}

    with pytest.raises(NotFound):
        await bench.memory.feedback(ANNA, Feedback(memory_id=alias, score=1, time=NOON))
    assert await bench.memory.forget(ANNA, [alias]) == 0


async def test_without_its_embedder_it_answers_by_words(bench):
    """Words that match are found; when none do, the service says that it failed instead of finding nothing."""
    await bench.memory.remember(ANNA, [Memory(text="jasmine tea")])
    blind = bench.service(Parts(english=FailingEmbedder(16, "hash-en"), foreign=FailingEmbedder(12, "hash-any")))

    assert ["jasmine tea"] == await texts(blind, asking("jasmine tea"))
    with pytest.raises(SourceUnavailable, match="by meaning"):
        await blind.recall(ANNA, asking("harbour"))


@pytest.mark.parametrize("change", [{"top_k": -1}, {"top_k": 101}, {"threshold": 1.01}, {"threshold": float("nan")}])
async def test_impossible_questions_are_refused(memory, change):
    """The field is named."""
    with pytest.raises(InvalidRequest, match=next(iter(change))):
        await memory.recall(ANNA, replace(asking("tea"), **change))


async def test_a_text_put_together_from_memories_says_nothing_new(bench):
    """An answer made of two memories that it was shown is one of them, and nothing is written for it."""
    one, two = "Anna moved to Lisbon in March last year", "Boris keeps three bees and two goats"
    ids = await bench.memory.remember(ANNA, [Memory(text=one), Memory(text=two)])
    writes = len(bench.index.writes)

    assert [ids[0]] == list(await bench.memory.remember(ANNA, [Memory(text=f"{one}. {two}.", injected=tuple(ids))]))
    assert len(bench.index.writes) == writes


LONG = "In the morning Anna drinks jasmine tea on the balcony and reads the paper until the ferry leaves the harbour"


@pytest.mark.parametrize(
    "text",
    [
        LONG.replace("drinks", "never drinks"),
        LONG.replace("until the", "until 9 the"),
        LONG.replace("jasmine", "linden"),
        LONG.replace("Anna", "Vera"),
        f"{LONG} pier7b",
        f"{LONG} and then walks to the old lighthouse",
        "tea and paper",
    ],
)
def test_a_text_that_says_more_is_new(text):
    """A negation, a number, or a few more words are something new, however much is repeated."""
    assert find_echo(text, [Record(id="m", text=LONG, acl=(PUBLIC,))]) is None


@pytest.mark.parametrize(
    "text", [LONG.upper(), f"Well: {LONG}!", f"I remember: {LONG}", "jasmine tea on the balcony", "tea"]
)
def test_a_text_that_repeats_is_known(text):
    """Case, punctuation and a word of greeting add nothing; a quotation is no news, and neither is a single word."""
    assert find_echo(text, [Record(id="m", text=LONG, acl=(PUBLIC,))]) == "m"


@pytest.mark.parametrize(
    ("text", "echo"),
    [
        (f"Well, hello: {LONG}", "m"),  # 20 of 22 words are repeated
        (f"Well, hello dear: {LONG}", None),  # 20 of 23
        ("And so it was that he said to them: jasmine tea on the balcony", None),  # 5 of 14
    ],
)
def test_a_tenth_of_a_text_may_be_its_own(text, echo):
    """Where more than a tenth of the words stand in no memory, a text is new, however little those words say."""
    assert echo == find_echo(text, [Record(id="m", text=LONG, acl=(PUBLIC,))])


@pytest.mark.parametrize(("levels", "taken"), [(31, True), (32, False), (5_000, False)])
async def test_metadata_may_be_nested_so_deep_and_no_deeper(memory, levels, taken):
    """Whoever recalls a memory walks through its metadata; what could not be walked through is never stored."""
    deep = "core"
    for at in range(levels):
        deep = {"in": deep} if at % 2 else [deep]
    told = Memory(text="tea", metadata={"deep": deep})
    if taken:
        assert await memory.remember(ANNA, [told])
        return
    with pytest.raises(InvalidRequest, match="nested 32 levels"):
        await memory.remember(ANNA, [told])
