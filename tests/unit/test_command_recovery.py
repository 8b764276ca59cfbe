"""How commands search when too little is found: what is asked, in which order, and when it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from contexture.builders.command._parser import parse_command
from contexture.builders.command.collect import RecoverySearch, initial_search
from contexture.builders.command.request import CommandRequest, ExperimentArm, Flags, resolve_params
from contexture.errors import (
    CommandRefused,
    CommandUnavailable,
    NothingFound,
    SourceUnavailable,
)
from contexture.ledger import Reason, Trace
from contexture.news._fingerprint import make_fingerprint, read_fingerprint
from contexture.resilience import Deadline
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.commands import SIX, CommandBench, ScriptedNews, found, surroundings


async def built(raw, *answers, scope=None, **parts):
    """A command built over these answers of the news."""
    bench = CommandBench(news=ScriptedNews(answers or [list(SIX)]), **parts)
    return await bench.builder().build_context({"raw_command": "/ask", **raw}, scope=scope)


async def test_widening_asks_only_for_what_it_adds():
    """Each window begins where the last one ended, and the documents of the narrow one come first."""
    news = ScriptedNews([SIX[3:5], [], SIX[:1], SIX[1:3]])
    made = await CommandBench(news=news).builder().build_context({"raw_command": "/ask", "args": "6h topic=pump"})
    spans = [(NOON - question.since, NOON - question.before) for question, _, _ in news.asked]

    hours = [round(span.total_seconds() / 3_600) for pair in spans[1:] for span in pair]
    assert hours == [12, 6, 24, 12, 72, 24]
    assert ["a3", "a4", "a0", "a1", "a2"] == [each.article_id for each in made.retrieval.docs]
    assert "3d" == made.retrieval.window


async def test_copies_in_other_windows_are_one_document():
    """A copy that widening brings takes no place of its own: the one found first stays, and lists it."""
    words = make_fingerprint(" ".join(f"word{at}" for at in range(40)))
    first, second, later = (
        replace(found(name, "Pump leaks.", hours=hours), print=read_fingerprint({"print": words}))
        for name, hours in (("first", 1), ("second", 9), ("later", 80))
    )
    news = ScriptedNews([[first], [second, SIX[0]], [], [later, second]])
    scope, deadline = Scope.local(), Deadline(8)
    search = initial_search(
        resolve_params(parse_command("/ask 6h pump"), CommandRequest(raw_command="/ask"), ExperimentArm())
    )
    climb = RecoverySearch(news, search, scope=scope, text="pump", now=NOON, deadline=deadline, trace=Trace())
    retrieved = await climb.retrieve(flags=Flags())

    assert [(0, "first"), (1, "a0"), (3, "later")] == [(at, each.article.article_id) for at, each in retrieved.found]
    assert ["second"] == [other.article_id for other in retrieved.found[0][1].article.also]
    assert [1, 0, 1, 0, 0] == [step.found for step in retrieved.steps]


async def test_a_thin_result_widens_the_window_and_no_more():
    """With one to four documents filters stay; what stays thin is given with a degradation."""
    news = ScriptedNews([SIX[:2]])
    made = (
        await CommandBench(news=news).builder().build_context({"raw_command": "/ask", "args": "24h lang=en topic=pump"})
    )

    assert {("en",)} == {question.langs for question, _, _ in news.asked}
    assert ["window"] * 5 == [step.rung for step in made.recovery]
    assert "24h" == made.retrieval.window
    assert ["only 2 of at least 5 documents were found"] == [each.reason for each in made.degradations]


async def test_strict_k_refuses_what_stays_thin():
    """Whoever insists on five documents gets an error instead of four."""
    with pytest.raises(CommandRefused, match="k_final: 2 documents are fewer than 5"):
        await built({"env": surroundings(strict_k=True)}, SIX[:2])


async def test_the_last_rung_asks_for_ten_documents_without_reranking():
    """What nothing else found is looked for by ranks alone."""
    many = [found(f"b{at}", f"Pump {at} leaks.") for at in range(12)]
    news = ScriptedNews([*[[]] * 7, many])
    made = (
        await CommandBench(news=news).builder().build_context({"raw_command": "/ask", "args": "6h topic=pump lang=en"})
    )

    assert (12, False) == news.asked[-1][1:]
    assert [10, False, "auto", "2w"] == [
        made.retrieval.k_final,
        made.retrieval.rerank_enabled,
        made.retrieval.lang,
        made.retrieval.window,
    ]


async def test_documents_that_were_close_are_in_the_ledger():
    """A few more than asked for are looked at, whatever ranks them; no more than asked for are given."""
    many = [found(f"b{at}", f"Pump {at} leaks.", score=1 - at / 100) for at in range(30)]
    for args in ("k=6", "k=6 no-rerank"):
        made = await built({"args": args}, many)

        assert 6 == made.retrieval.k_final
        assert 2 == sum(entry.reason is Reason.BEYOND_TOP_K for entry in made.ledger.entries)


async def test_memory_commands_need_no_documents():
    """They look once, without recovery, and storing does not look at all."""
    for mode, looked in (("suggest", 1), ("recall", 1), ("store", 0)):
        news = ScriptedNews()
        made = (
            await CommandBench(news=news)
            .builder()
            .build_context(
                {"raw_command": f"/memory {mode}", "args": "pumps topic=oil", "env": surroundings(strict_k=True)}
            )
        )

        assert [looked, 0, (), ("pumps", "oil")] == [
            len(news.asked),
            made.retrieval.k_final,
            made.degradations,
            made.memory.semantic_keys,
        ]


async def test_a_store_that_fails_at_once_fails_the_command():
    """Nothing was found because nobody could look: that is not NO_DATA."""
    with pytest.raises(CommandUnavailable) as failure:
        await built({}, SourceUnavailable("the index is gone"))

    assert ["UNAVAILABLE", True] == [failure.value.to_dict()["error"][name] for name in ("code", "retryable")]


async def test_a_store_that_fails_later_costs_only_what_was_not_found():
    """What the narrow window had is given, with a degradation."""
    made = await built({}, SIX[:3], SourceUnavailable("the index is gone"))

    assert 3 == made.retrieval.k_final
    assert "SourceUnavailable: the index is gone" in [each.reason for each in made.degradations]


class Slow(ScriptedNews):
    """News that answer what they know, and then never again."""

    async def find(self, scope, question, **asked):
        """The next answer, or a wait for ever."""
        if len(self.asked) >= len(self.answers):
            await asyncio.Event().wait()
        return await ScriptedNews.find(self, scope, question, **asked)


async def test_the_whole_ladder_ends_with_the_commands_time():
    """A store that hangs is given up when the one deadline of all steps is over; what was found is given."""
    times = iter([0.0, 1.0, 20.0, 20.0])
    deadline = Deadline(18, clock=lambda: next(times))
    search, trace = initial_search((await built({})).params), Trace()
    climb = RecoverySearch(
        Slow([SIX[:2]]), search, scope=Scope.local(), text="pump", now=NOON, deadline=deadline, trace=trace
    )
    found_in_time = await climb.retrieve(flags=Flags())

    assert 2 == len(found_in_time.found)
    (lost,) = trace.finish(()).degradations
    assert "the article store did not answer within 18 s" in lost.reason


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"raw_command": "/ask", "color": 1}, "unknown field 'color'"),
        ({"raw_command": "/ask", "env": {"defaults": {"k": 1}}}, "unknown field 'env.defaults.k'"),
        (
            {"raw_command": "/ask", "env": {"feature_flags": {"strict_k": "yes"}}},
            "'env.feature_flags.strict_k' must be true or false",
        ),
        (
            {"raw_command": "/ask", "env": {"defaults": {"window": "5h"}}},
            "field 'env.defaults.window': invalid enum value '5h'",
        ),
        ({"raw_command": 1}, "field 'raw_command' must be a string"),
        ({}, "field 'raw_command' is missing"),
        ([], "a command must be an object, not list"),
    ],
)
async def test_what_is_wrong_with_a_request_is_named(raw, sentence):
    """An unknown or malformed field is refused by name."""
    with pytest.raises(CommandRefused) as refusal:
        await CommandBench().builder().build_context(raw)

    assert sentence in str(refusal.value)


async def test_articles_dated_a_little_ahead_are_found():
    """A source whose clock is wrong by hours is not hidden, and tomorrow's news of another clock is."""
    news = ScriptedNews([SIX])
    await CommandBench(news=news).builder().build_context({"raw_command": "/ask"})

    assert NOON + timedelta(days=1) == news.asked[0][0].before


async def test_a_store_that_fails_before_anything_is_found_fails_the_command():
    """An empty first window says nothing about those that could not be asked."""
    with pytest.raises(CommandUnavailable, match="the index is gone"):
        await built({}, [], SourceUnavailable("the index is gone"))


async def test_the_widest_window_cannot_be_widened():
    """After a year there is nothing but the other rungs."""
    with pytest.raises(NothingFound) as nothing:
        await built({"args": "6m zeppelin"}, [])

    assert nothing.value.tech.endswith("Steps: expanded window to 1y, disabled rerank")
