"""The shipped doubles keep the contracts they stand in for."""

from __future__ import annotations

import importlib
import sys

import pytest

from contexture.errors import SourceUnavailable
from contexture.testing.doubles import FailingEmbedder, HashEmbedder, ScriptedChatModel, WordCounter, WordRedactor
from contexture.testing.embedders import EmbedderConformance
from contexture.testing.tokens import TokenCounterConformance
from contexture.types import Span


class TestHashEmbedder(EmbedderConformance):
    """The double of an embedder keeps the embedder's contract."""

    @pytest.fixture
    def embedder(self) -> HashEmbedder:
        """A small one."""
        return HashEmbedder()


class TestWordCounter(TokenCounterConformance):
    """The double of a token counter keeps the counter's contract."""

    @pytest.fixture
    def counter(self) -> WordCounter:
        """The only one there is."""
        return WordCounter()


async def test_a_failing_embedder_fails_when_told_to() -> None:
    """It answers as often as it is healthy, then it is down."""
    embedder = FailingEmbedder(healthy=1)
    await embedder.embed(["a"])
    with pytest.raises(SourceUnavailable):
        await embedder.embed(["a"])


async def test_a_scripted_model_follows_its_script() -> None:
    """Answers in turn, whole or in pieces; errors are raised, and beyond the end it is down."""
    model = ScriptedChatModel(["one", SourceUnavailable("busy"), "two words"])
    asked = [{"role": "user", "content": "hello"}]

    assert "one" == await model.complete(asked, max_tokens=5)
    with pytest.raises(SourceUnavailable, match="busy"):
        await model.complete(asked, max_tokens=5)
    assert ["two", " words"] == [piece async for piece in model.stream(asked, max_tokens=5)]
    with pytest.raises(SourceUnavailable, match="no further answer"):
        await model.complete(asked, max_tokens=5)
    assert [asked] * 3 == model.asked


def test_a_word_redactor_finds_every_occurrence() -> None:
    """Spans are sorted and apart, the leftmost word first."""
    assert [Span(0, 2, "WORD"), Span(2, 4, "WORD"), Span(5, 6, "WORD")] == WordRedactor(("ab", "c")).scan("abab c", "")
    assert [] == WordRedactor(()).scan("abc", "")


@pytest.mark.parametrize("package", ["hypothesis", "pytest", "pytest_asyncio"])
def test_a_missing_package_is_named(package, monkeypatch):
    """Without the extra, the import fails with the command that installs it."""
    monkeypatch.delitem(sys.modules, "contexture.testing")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as failure:
        importlib.import_module("contexture.testing")

    assert f'contexture.testing needs {package}: pip install "contexture-ai[testing]"' == str(failure.value)
