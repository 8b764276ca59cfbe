"""Capsules of a builder that is not one of the five are replayed and explained like theirs."""

from __future__ import annotations

import pytest

from contexture.adapters.token_counters import counter_for
from contexture.builders.replay import ComposedPrompt
from contexture.capsule import Capsule, make_capsule, pack_capsule, unpack_capsule
from contexture.errors import InvalidRequest, ReplayMismatch
from contexture.ledger import Reason, Trace
from contexture.pipeline.candidates import rank_candidates
from contexture.ports import TokenCounter
from contexture.testing.doubles import NOON
from contexture.types import Candidate, Scope
from contexture.wiring import capsule_replayer

MODEL = "gpt-4o"
VERSES = tuple(
    Candidate(id=f"v-{at}", key=f"v-{at}", text=f"verse {at} of the tide", score=1 - at / 10, redacted=True)
    for at in range(4)
)


def recompose_poem(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The best verses that fit, one per line; the others are over budget."""
    left = capsule.request["max_tokens"] + more_tokens
    shown = []
    for verse in rank_candidates(capsule.candidates):
        tokens = counter.count(f"{verse.text}\n")
        if tokens <= left:
            shown.append(verse.text)
            left -= tokens
            trace.keep(verse, tokens=tokens)
        else:
            trace.drop(verse, Reason.OVER_BUDGET, tokens=tokens)
    unlimited = sum(counter.count(f"{verse.text}\n") for verse in capsule.candidates)
    return ComposedPrompt(({"role": "user", "content": "\n".join(shown)},), unlimited)


def poem(max_tokens: int, content: str) -> Capsule:
    """The capsule of a poem that a build has composed."""
    counter, trace = counter_for(MODEL), Trace()
    bare = Capsule(
        kind="poem",
        tenant="local",
        user="anna",
        groups=(),
        now=NOON,
        request={"max_tokens": max_tokens},
        settings={"model": MODEL},
        candidates=VERSES,
        lost=(),
        degradations=(),
        messages=(),
        digest="",
    )
    recompose_poem(bare, 0, counter, trace)
    return make_capsule(
        "poem",
        scope=Scope(tenant="local", user="anna"),
        now=NOON,
        request=bare.request,
        settings=bare.settings,
        candidates=VERSES,
        ledger=trace.finish(VERSES),
        messages=({"role": "user", "content": content},),
    )


TWO_VERSES = poem(14, "verse 0 of the tide\nverse 1 of the tide")


def test_a_capsule_of_another_builder_is_replayed():
    """Its function composes the same messages, from the file alone."""
    built = capsule_replayer({"poem": recompose_poem}).replay(unpack_capsule(pack_capsule(TWO_VERSES)))

    assert TWO_VERSES.messages == built.messages
    assert ["v-0", "v-1", "v-2", "v-3"] == [entry.id for entry in built.ledger.entries]


def test_a_candidate_of_another_builder_is_explained():
    """The tokens and the score that would have admitted it are found by composing again."""
    found = capsule_replayer({"poem": recompose_poem}).explain(TWO_VERSES, "v-2")

    assert Reason.OVER_BUDGET is found.entry.reason
    assert counter_for(MODEL).count(f"{VERSES[2].text}\n") * 3 - 14 == found.more_tokens
    assert pytest.approx(VERSES[1].score, abs=1e-4) == found.score_needed


def test_another_builder_that_composes_something_else_is_a_mismatch():
    """The bytes are compared, whoever composed them."""
    with pytest.raises(ReplayMismatch):
        capsule_replayer({"poem": recompose_poem}).replay(poem(14, "verse 0 of the tide"))


def test_a_kind_that_nobody_knows_is_refused():
    """The error lists the kinds that are known."""
    with pytest.raises(InvalidRequest, match=r"kind 'poem': .* are ask, command, query, research, turn, workspace"):
        capsule_replayer().replay(TWO_VERSES)


def test_no_other_builder_takes_the_kind_of_one_of_the_five():
    """Otherwise an installed package would change how old capsules are replayed."""
    with pytest.raises(InvalidRequest, match="'query' belongs to Contexture"):
        capsule_replayer({"query": recompose_poem})
