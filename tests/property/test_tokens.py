"""Promises of the token counters on arbitrary text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from contexture.adapters.token_counters import counter_for, split_paragraphs
from support.injection import reference_encoding

NAMES = ["cl100k_base", "o200k_base", "smollm2", "estimate-claude", "estimate-any"]

# Pieces that meet the corners of the pre-tokenizers: white space runs, contractions, marks, digits, odd scripts.
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028"]
LETTERS = ["a", "Ab", "'s", "'LL", "12", "1234", "é", "e\u0301", "ы", "Ы", "中", "ก", "ǅ", "²", "Ⅷ", "ﷺ"]
SIGNS = ["!", "//", "_", "😀", "\u200d", "\x00", "<|endoftext|>", "\ud800"]
PIECES = st.sampled_from([*SPACES, *LETTERS, *SIGNS])
TEXTS = st.one_of(st.text(st.characters(), max_size=60), st.lists(PIECES, max_size=30).map("".join))


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
@settings(deadline=None)
@given(text=TEXTS)
def test_exact_counts_equal_the_reference(name: str, text: str) -> None:
    """Any text counts as the reference implementation encodes it."""
    assert len(reference_encoding(name).encode_ordinary(text)) == counter_for(name).count(text)


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
@settings(deadline=None)
@given(parts=st.lists(TEXTS, max_size=6))
def test_paragraphs_count_alone_what_they_count_together(name: str, parts: list[str]) -> None:
    """Wherever a long text is divided, no token of the reference implementation lies across."""
    text = "\n\n".join(parts)
    counted = [len(reference_encoding(name).encode_ordinary(part)) for part in split_paragraphs(text)]

    assert len(reference_encoding(name).encode_ordinary(text)) == sum(counted)


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


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "smollm2"])
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

    assert counter.count_messages(messages) >= sum(map(counter.count, contents)) + 3 * len(contents)


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

    assert len(reference_encoding(name).encode_ordinary(text)) == counter_for(name).count(text)


DIGITS = st.text("0123456789 .,-:/%", max_size=80)
IDEOGRAPHS = st.text(
    st.sampled_from(
        "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从享填嵬龘、。！？あごカ・가결푤"
    )
    | st.characters(min_codepoint=0x3041, max_codepoint=0x9FFF)
    | st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3),
    max_size=60,
)
EMOJI = st.text(
    st.sampled_from("★♀♂❤☀✓→•😀👍🖉🏳👨👩👧\u200d\ufe0f") | st.characters(min_codepoint=0x1F300, max_codepoint=0x1FAFF),
    max_size=40,
)
REPEATED = st.builds(
    lambda text, times: text * times, st.text(max_size=3, alphabet="0178★的享♀가😀・"), st.integers(1, 60)
)


@cache
def claude2() -> Tokenizer:
    """Claude 2's tokenizer, which LiteLLM ships."""
    folder = files("litellm").joinpath("litellm_core_utils", "tokenizers", "anthropic_tokenizer.json")
    return Tokenizer.from_str(folder.read_text("utf-8"))


@pytest.mark.parametrize("name", ["estimate-claude", "estimate-any"])
@settings(deadline=None)
@given(pieces=st.lists(DIGITS | IDEOGRAPHS | EMOJI | REPEATED, max_size=4))
def test_an_estimate_holds_for_digits_ideographs_and_emoji(name: str, pieces: list[str]) -> None:
    """It is at least what every exact tokenizer that we have counts."""
    text = "".join(pieces)
    exact = [counter_for(each).count(text) for each in ("cl100k_base", "o200k_base", "smollm2")]

    assert counter_for(name).count(text) >= max(*exact, len(claude2().encode(text, add_special_tokens=False).ids))
