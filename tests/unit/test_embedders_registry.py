"""Names in the settings become embedders and rerankers."""

from __future__ import annotations

import re
import sys

import pytest

from contexture.errors import UnknownAdapter
from contexture.wiring import plugins


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("minilm", "minilm-en-2"),
        ("use", "use-multi-3"),
        ("fastembed:BAAI/bge-small-en-v1.5", "fastembed-BAAI/bge-small-en-v1.5"),
    ],
)
def test_a_known_name_gives_its_embedder(name: str, expected: str) -> None:
    """The embedder's own name says which one it is; loading weights waits for the first text."""
    assert expected == plugins.load_embedder(name, threads=1).name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "no embedder is called ''; the known ones are fastembed, granite, litellm, minilm, use"),
        ("word2vec", "no embedder is called 'word2vec'; the known ones are fastembed, granite, litellm, minilm, use"),
        ("minilm:x", "takes no model: write 'minilm' alone"),
        ("fastembed:", "needs a model: write `fastembed:MODEL`"),
    ],
)
def test_a_wrong_name_says_what_to_write(name: str, said: str) -> None:
    """A misspelt embedder is the caller's mistake and the answer names the choices."""
    with pytest.raises(UnknownAdapter, match=re.escape(said)):
        plugins.load_embedder(name, threads=1)


def test_an_unknown_fastembed_model_lists_the_catalogue() -> None:
    """A model that fastembed does not have is refused before anything is downloaded."""
    with pytest.raises(UnknownAdapter, match=r"baai/bge-small-en-v1\.5"):
        plugins.load_embedder("fastembed:nobody/nothing", threads=1)


def test_rerankers_are_found_by_name() -> None:
    """A reranker's name leads to it; an unknown one lists the choices."""
    assert (
        "fastembed-Xenova/ms-marco-MiniLM-L-6-v2"
        == plugins.load_reranker("fastembed:Xenova/ms-marco-MiniLM-L-6-v2").name
    )
    with pytest.raises(UnknownAdapter, match="the known ones are fastembed"):
        plugins.load_reranker("cohere")
    with pytest.raises(UnknownAdapter, match="xenova/ms-marco-minilm-l-6-v2"):
        plugins.load_reranker("fastembed:nobody/nothing")


@pytest.mark.parametrize(
    ("load", "name", "package"),
    [
        (lambda name: plugins.load_embedder(name, threads=1), "fastembed:x", "fastembed"),
        (lambda name: plugins.load_embedder(name, threads=1), "litellm:x", "litellm"),
        (plugins.load_reranker, "fastembed:x", "fastembed"),
    ],
)
def test_a_missing_extra_says_what_to_type(load, name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package an adapter fails at import, in one sentence with the command."""
    for module in [module for module in sys.modules if module.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("embedders.catalogue", "embedders.fastembed", "embedders.litellm", "rerankers.fastembed"):
        monkeypatch.delitem(sys.modules, f"contexture.adapters.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ImportError, match=rf'pip install "contexture-ai\[{package}\]"'):
        load(name)
