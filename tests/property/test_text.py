"""Promises about cutting texts: nothing is lost, nothing overlaps, nothing crashes."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from contexture.retrieval.prepare import clip_spans
from contexture.text.language import detect_language
from contexture.text.segmentation import split_passages, split_sentences
from contexture.text.simhash import hamming_distance, simhash
from contexture.text.terms import extract_terms, split_words
from contexture.text.unicode import is_valid_unicode, repair_text
from contexture.types import Span

PROSE = st.text("ab. !?\n\r\t-1)#:дЯ。🙂\u2028\x1c\x85", max_size=200)
ANY = st.one_of(PROSE, st.text(max_size=80), st.text(st.characters(codec=None), max_size=40))


def visible(text: str) -> str:
    """The text without white space."""
    return re.sub(r"\s", "", text)


@given(text=ANY)
def test_sentences_cover_everything_once(text: str) -> None:
    """In order, trimmed, apart, and together every character that is not white space."""
    found = split_sentences(text)

    assert all(first[1] <= second[0] for first, second in pairwise(found))
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in found)
    assert visible(text) == visible("".join(text[start:end] for start, end in found))


@given(text=ANY, target=st.integers(1, 60))
def test_passages_cover_everything_once(text: str, target: int) -> None:
    """Passages are in order, apart, bounded, and cover what is visible; their sentences lie inside them."""
    found = split_passages(text, target=target)

    assert all(first[0][1] <= second[0][0] for first, second in pairwise(found))
    assert visible(text) == visible("".join(text[start:end] for (start, end), _ in found))
    for (start, end), inner in found:
        assert 0 < end - start <= max(2 * target, target + target // 4)
        assert (start, end) == (inner[0][0], inner[-1][1])
        assert all(first[1] <= second[0] for first, second in pairwise(inner))


@given(text=ANY)
def test_any_text_has_words_terms_a_hash_and_a_language(text: str) -> None:
    """No text is too odd; hashes have 64 bits, terms 32, and case does not matter to either."""
    assert 0 <= simhash(text) < 2**64
    assert all(0 <= term < 2**32 for term in extract_terms(text))
    assert len(extract_terms(text)) <= len(split_words(text))
    assert detect_language(text)
    assert 0 == hamming_distance(simhash(text), simhash(text))


@given(text=st.lists(st.sampled_from(("pump", "насос", "river", "stone")), max_size=20))
def test_terms_count_words(text: list[str]) -> None:
    """A text's terms are those of its words, as often as they occur."""
    assert Counter(extract_terms(" ".join(text))) == sum((Counter(extract_terms(word)) for word in text), Counter())


@given(text=st.text(st.characters(codec=None), max_size=60))
def test_mended_texts_are_valid(text: str) -> None:
    """Any string becomes one that UTF-8 can carry; valid ones stay as they are."""
    assert is_valid_unicode(repair_text(text))
    assert not is_valid_unicode(text) or repair_text(text) == text


@given(
    marks=st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True).map(sorted),
    cuts=st.lists(st.integers(0, 50), min_size=2, max_size=6, unique=True).map(sorted),
)
def test_clipped_spans_cover_the_same_characters(marks: list[int], cuts: list[int]) -> None:
    """Cutting a text in pieces and clipping its spans to them marks the same characters, no more and no less."""
    spans = [Span(start, end, "X") for start, end in zip(marks[::2], marks[1::2], strict=False)]
    inside = {
        start + at
        for start, end in pairwise(cuts)
        for span in clip_spans(spans, start, end)
        for at in range(span.start, span.end)
    }

    assert inside == {at for span in spans for at in range(span.start, span.end) if cuts[0] <= at < cuts[-1]}
