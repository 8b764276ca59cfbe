"""Encodings run by tiktoken count as the libraries they replace."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters import byte_pairs
from contexture.adapters.embedders import granite
from contexture.adapters.installed_packages import find_packaged_file
from contexture.adapters.token_counters import ENCODINGS, BytePairCounter

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text("aA1 \n\t'éПж中😀<|endoftext|>", max_size=200)


@pytest.fixture(scope="module")
def without_rs_bpe():
    """Loads an encoding as an installation without the extra `fast` does."""
    loaded = {}

    def load(name: str) -> byte_pairs.BytePairs:
        if name not in loaded:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(byte_pairs, "find_spec", lambda _: None)
                loaded[name] = byte_pairs.load_openai_encoding.__wrapped__(name)
        return loaded[name]

    return load


@pytest.mark.parametrize("name", ENCODINGS)
def test_both_libraries_encode_alike(name, without_rs_bpe) -> None:
    """Tokens, counts and limits do not depend on which library is installed."""
    fast, plain = byte_pairs.load_openai_encoding(name), without_rs_bpe(name)

    @given(TEXTS, st.integers(0, 30))
    def check(text: str, limit: int) -> None:
        assert fast.encode(text) == plain.encode(text)
        assert fast.count_till_limit(text, limit) == plain.count_till_limit(text, limit)

    check()


@pytest.mark.parametrize("name", ENCODINGS)
def test_prefixes_are_alike(name, without_rs_bpe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut text ends at the same character, also within what is one token of several characters."""
    texts = ["naïve café — 中文字符 😀😀 and more", "a" * 500, "\ud800 lone", "Ünïcödé " * 40]
    counter = BytePairCounter(name)
    expected = [counter.prefix(text, limit) for text in texts for limit in range(1, 20)]
    monkeypatch.setattr("contexture.adapters.token_counters.load_openai_encoding", without_rs_bpe)

    assert expected == [counter.prefix(text, limit) for text in texts for limit in range(1, 20)]


def test_granite_reads_the_tokens_of_its_tokenizer_file() -> None:
    """The ids of any text without special tokens are those of the library that its tokenizer was made for."""
    file = granite.read_model_file(find_packaged_file(granite.PACKAGE, *granite.FILE))
    reference, encode = tokenizers.Tokenizer.from_str(file.tokenizer), granite.read_tokenizer(file.tokenizer)
    reference.enable_truncation(granite.MAX_WORDPIECES)

    @given(TEXTS.map(lambda text: text.replace("<", "(")) | st.just("Rivers and floods " * 400))
    def check(text: str) -> None:
        assert reference.encode(text).ids == encode(text)

    check()
    assert [0, 41552, 29, 15698, 2] == encode("<s>")
