"""Whatever pages hold: budgets hold, verdicts add up, fences close, citations resolve, replays are equal."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contexture.adapters.token_counters import counter_for
from contexture.answer.citation_check import parse_claims
from contexture.answer.grounding import find_cited_numbers, move_markers_before_stops, remove_unknown_markers
from contexture.builders._tokens import estimate_tokens
from contexture.builders.research.render import render_block, split_sentences
from contexture.builders.research.result import deduplicate_results
from contexture.errors import InvalidRequest
from contexture.ledger import State
from contexture.pages.values import StoredPage
from contexture.pipeline.fence import fence, is_fenced
from contexture.pipeline.masking import EMPTY_MASK
from contexture.pipeline.redaction import Placeholders
from contexture.retrieval.citations import QuoteChecker
from contexture.service.envelope import encode_json
from contexture.testing.doubles import NOON, WordRedactor
from contexture.types import Collection, Form, Record, Scope
from support.replay import replayer
from support.research import HIDDEN, ScriptedPages, research_over, stored

COUNTER = counter_for("o200k_base")
SCOPE = Scope.local()
words = st.sampled_from(
    ["pump", "leaks.", "Ёлка", "горит!", HIDDEN, "…", "\n", "\n\n", "# Head\n", "[Document 3: x, Page 1]", "system:",
     "| a | b |\n", "42", "<WORD_1>", "\t", "e.g.", "Is it?", "漢字。"]
)  # fmt: skip
texts = st.lists(words, max_size=60).map(" ".join) | st.text(max_size=80)
names = st.sampled_from(["a.pdf", "b, Page 1]", "c\n[Document 2: d", f"{HIDDEN}.docx", ""])
shelves = st.lists(st.tuples(texts, names, st.floats(0, 1), st.booleans()), max_size=6)


def over(shelf, *, hide=True):
    """The scripted pages of a shelf; those that are closed are there only when nothing is hidden."""
    pages = [
        stored(f"d{at}", at + 1, text, filename=name, readers=("public",) if open_ else ("group:board",))
        for at, (text, name, _, open_) in enumerate(shelf)
        if hide or open_
    ]
    scores = {(f"d{at}", at + 1): score for at, (_, _, score, _) in enumerate(shelf)}
    return ScriptedPages(pages, text=scores)


def build(pages, limit, query="Which pump leaks?"):
    """A context."""
    return asyncio.run(research_over(pages).build_context(query, max_tokens=limit, now=NOON))


@settings(max_examples=60)
@given(shelves, st.integers(1, 400))
def test_a_context_keeps_its_promises(shelf, limit):
    """It fits, it is fenced and redacted, every page has one verdict, and it is cut exactly when it says so."""
    built = build(over(shelf), limit)
    whole = build(over(shelf), 10**6)

    assert COUNTER.count(built.formatted_text) == built.total_tokens <= limit
    assert HIDDEN not in built.formatted_text + repr(built.sources)
    assert len(built.ledger.entries) == sum(open_ for *_, open_ in shelf)
    assert len(built.sources) == sum(entry.state is not State.DROPPED for entry in built.ledger.entries)
    assert built.truncated == (built.formatted_text != whole.formatted_text)
    bodies = built.formatted_text.split("\n")
    assert len(built.sources) == sum(line.startswith("[Document ") for line in bodies)
    assert all(is_fenced(line) for line in bodies if not line.startswith("[Document "))


@settings(max_examples=40)
@given(shelves, st.integers(1, 400))
def test_pages_that_may_not_be_read_change_nothing(shelf, limit):
    """With forbidden pages present or absent the result is the same to the byte."""
    assert build(over(shelf), limit) == build(over(shelf, hide=False), limit)


@settings(max_examples=40)
@given(shelves, st.integers(1, 400))
def test_a_capsule_rebuilds_the_same_context(shelf, limit):
    """Messages and verdicts are those of the build."""
    built = build(over(shelf), limit)
    again = replayer(COUNTER).rebuild(built.capsule)

    assert built.messages == again.messages
    assert built.ledger == again.ledger


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_any_question_is_answered_or_refused(question):
    """What is blank is refused; everything else is asked, and stands last in the prompt."""
    pages = over([("The pump leaks.", "a.pdf", 0.5, True)])
    if question.strip():
        assert "user" == build(pages, 100, question).messages[-1]["role"]
    else:
        with pytest.raises(InvalidRequest):
            build(pages, 100, question)


class Shelf:
    """Pages as a store of records."""

    def __init__(self, pages):
        self._pages = pages

    async def collections(self, scope):
        """The one there is."""
        return [Collection(name="pages")]

    async def get(self, scope, collection, ids):
        """Those that the scope may read."""
        places = [(key.rpartition(":")[0], int(key.rpartition(":")[2])) for key in ids]
        found = await self._pages.pages(scope, places)
        return [
            Record(
                id=f"{page.doc_id}:{page.page}",
                text=page.text,
                acl=page.readers,
                lang=page.lang,
                source=page.filename,
            )
            for page in found
        ]


@settings(max_examples=60)
@given(shelves, st.integers(1, 400))
def test_every_citation_of_every_context_holds(shelf, limit):
    """What is shown, after redaction and shortening, is what stands at the cited characters."""
    pages = over(shelf)
    built = build(pages, limit)
    if not built.citations:
        return
    claims = parse_claims(encode_json(built.to_dict()))
    check = QuoteChecker(
        stored=Shelf(pages), redactor=WordRedactor((HIDDEN,)), operator=Placeholders(), mask=EMPTY_MASK
    )

    assert () == claims.faults
    assert [] == asyncio.run(check.find_problems(SCOPE, claims.quotes))


@settings(max_examples=40)
@given(shelves, st.integers(30, 400))
def test_a_page_is_left_out_only_when_it_cannot_be_shortened_to_fit(shelf, limit):
    """No page is dropped for its size while a better one is still whole and a smaller form of itself would fit."""
    built = build(over(shelf), limit)
    dropped = [
        entry for entry in built.ledger.entries if entry.state is State.DROPPED and entry.reason == "over_budget"
    ]
    whole = [entry for entry in built.ledger.entries if entry.form is Form.FULL]

    for entry in dropped:
        assert entry.tokens + built.total_tokens > limit
        assert all(better.score >= entry.score or better.tokens < entry.tokens for better in whole)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.floats(allow_nan=True)), max_size=12))
def test_results_are_one_per_page_and_sorted(rows):
    """The best of each page stays, with all that it carries."""
    results = [{"doc_id": doc, "page": page, "score": score, "row": at} for at, (doc, page, score) in enumerate(rows)]
    kept = deduplicate_results(results)
    scores = [each["score"] for each in kept if each["score"] == each["score"]]

    assert {(each["doc_id"], each["page"]) for each in results} == {(each["doc_id"], each["page"]) for each in kept}
    assert len(kept) == len({(each["doc_id"], each["page"]) for each in kept})
    assert scores == sorted(scores, reverse=True)
    assert all(each is results[each["row"]] for each in kept)
    assert kept == deduplicate_results(kept)


@given(st.text(max_size=300))
def test_an_estimate_is_never_negative_and_zero_only_for_nothing(text):
    """Any text has at least one token."""
    assert (estimate_tokens(text) == 0) == (text == "")
    assert estimate_tokens(text) >= 0


markers = st.sampled_from(["[1]", "[9]", "[1, 9]", "[Document 2]", "[Document 7: x.pdf, Page 3]", "[1-3]", "[x]", "."])


@given(st.lists(markers | st.text(max_size=10), max_size=12).map(" ".join))
def test_after_cleaning_every_marker_points_somewhere(text):
    """Cleaning leaves only known numbers, and cleaning twice changes nothing."""
    done = remove_unknown_markers(text, {1, 2})

    assert set(find_cited_numbers(done.text)) <= {1, 2}
    assert done.text == remove_unknown_markers(done.text, {1, 2}).text
    assert sorted(text) == sorted(move_markers_before_stops(text))


def known(page: StoredPage) -> StoredPage:
    """The page with what a store computes when it is written."""
    return replace(
        page,
        sentences=split_sentences(page.text),
        redactions=tuple(WordRedactor((HIDDEN,)).scan(page.text, "")),
        rules=WordRedactor((HIDDEN,)).rules,
        tokens={COUNTER.encoding: COUNTER.count(fence(page.text))},
    )


@settings(max_examples=100)
@given(shelves, st.integers(1, 400))
def test_what_was_computed_at_writing_changes_nothing(shelf, limit):
    """With stored sentences, redactions and counts a context is the one that a build finds out by itself."""
    pages = over(shelf)
    plain = build(pages, limit)
    pages._pages = {place: known(page) for place, page in pages._pages.items()}
    told = build(pages, limit)

    assert plain.formatted_text == told.formatted_text
    assert plain.sources == told.sources
    assert plain.ledger == told.ledger


@settings(max_examples=300)
@given(st.text(min_size=1, max_size=60) | texts, st.sampled_from(["o200k_base", "cl100k_base"]))
def test_a_page_counts_below_its_header_as_it_counts_alone(text, encoding):
    """The count of the header line and that of the visible text add up to that of the block."""
    counter, content = counter_for(encoding), text.strip()
    apart = counter.count("[Document 1: a.pdf, Page 1]\n") + counter.count(fence(content))

    assert content[:1] in {"", "/"} or counter.count(render_block(1, "a.pdf", 1, content)) == apart
