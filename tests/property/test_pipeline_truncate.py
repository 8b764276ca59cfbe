"""Promises of truncation: never too long, and every character accounted for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.ledger import Trace
from contexture.pipeline.truncation import ELLIPSIS, TruncationStrategy, summarize, truncate

CUTS = (TruncationStrategy.KEEP_START, TruncationStrategy.KEEP_END, TruncationStrategy.EXTRACTIVE)
WORDS = st.sampled_from(("river", "stone", "budget", "token.", "река", "end!", "What?", "a", "\n\n"))
TEXTS = st.lists(WORDS, max_size=120).map(" ".join) | st.text(max_size=300)


class Quarters:
    """Counts one token for every four characters begun."""

    encoding = "quarters"
    exact = True

    def count(self, text):
        """A quarter of the length, rounded up."""
        return -(-len(text) // 4)

    def count_messages(self, messages):
        """The contents' counts, summed."""
        return sum(self.count(message["content"]) for message in messages)

    def prefix(self, text, limit):
        """The first four times `limit` characters."""
        return text[: max(0, limit) * 4]


class Answering:
    """A chat model with one answer."""

    name = "answering"

    def __init__(self, answer):
        self.answer = answer

    async def complete(self, messages, *, max_tokens):
        """The answer, whatever was asked."""
        return self.answer


@pytest.mark.parametrize("strategy", CUTS)
@given(text=TEXTS, limit=st.integers(-1, 60), query=TEXTS)
def test_never_over_the_limit(strategy, text, limit, query):
    """The result counts at most the limit, and says what it counts."""
    counter = Quarters()
    cut = truncate(text, counter, limit, strategy=strategy, query=query, min_tokens=1, min_chars=1)

    assert cut is None or counter.count(cut.text) == cut.tokens <= max(0, limit)


@pytest.mark.parametrize("strategy", CUTS)
@given(text=TEXTS, limit=st.integers(0, 60), query=TEXTS)
def test_spans_give_the_text_back(strategy, text, limit, query):
    """The kept spans are in order, apart, and with marks between and around them they are the result."""
    cut = truncate(text, Quarters(), limit, strategy=strategy, query=query, min_tokens=1, min_chars=1)
    if cut is None:
        return
    edges = [edge for span in cut.spans for edge in span]

    joined = ELLIPSIS.join(text[start:end] for start, end in cut.spans)
    marked = {f"{before}{joined}{after}" for before in ("", "… ") for after in ("", " …")}

    assert cut.text in marked or "left out)" in cut.text
    assert sorted(edges) == edges
    assert all(start < end for start, end in cut.spans)


@pytest.mark.parametrize("strategy", CUTS)
@given(text=TEXTS, limit=st.integers(0, 60), tokens=st.integers(0, 40), chars=st.integers(0, 60))
def test_a_cut_is_only_made_when_worth_having(strategy, text, limit, tokens, chars):
    """A text that does not fit is cut only with enough tokens left and enough characters remaining."""
    counter = Quarters()
    cut = truncate(text, counter, limit, strategy=strategy, min_tokens=tokens, min_chars=chars)

    if counter.count(text) <= limit:
        assert cut is not None
        assert text == cut.text
    elif cut is not None:
        assert limit >= tokens
        assert len(cut.text) >= chars


@given(text=TEXTS, limit=st.integers(1, 60), answer=TEXTS)
async def test_a_summary_never_exceeds_the_limit(text, limit, answer):
    """Whatever the model answers, the result fits."""
    counter = Quarters()
    cut = await summarize(text, counter, limit, model=Answering(answer), trace=Trace(), min_tokens=1, min_chars=1)

    assert cut is None or counter.count(cut.text) == cut.tokens <= limit
