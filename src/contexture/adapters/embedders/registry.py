"""Loads embedders and rerankers by their names in the settings; a backend is imported only when it is used."""

from __future__ import annotations

from contexture.errors import UnknownAdapter
from contexture.ports import Embedder, Reranker

EMBEDDER_NAMES = ("minilm", "use", "fastembed:MODEL", "litellm:MODEL", "litellm:MODEL@DIMENSIONS")


def load_embedder(name: str, *, threads: int) -> Embedder:
    """Embedder of this name; its model is loaded on first use. Raises `UnknownAdapter`.

    `threads` limits the threads of one call, for embedders that run in this process.
    """
    kind, _, model = name.partition(":")
    match kind, model:
        case "minilm", "":
            from contexture.adapters.embedders.minilm import MiniLM

            return MiniLM(threads=threads)
        case "use", "":
            from contexture.adapters.embedders.use import MultilingualUSE

            return MultilingualUSE(threads=threads)
        case "fastembed", str() if model:
            from contexture.adapters.embedders.fastembed import FastEmbedEmbedder

            return FastEmbedEmbedder(model, threads=threads)
        case "litellm", str() if model:
            from contexture.adapters.embedders.litellm import LiteLLMEmbedder

            return LiteLLMEmbedder.from_name(model)
        case _:
            raise UnknownAdapter(f"no embedder is called {name!r}; the known ones are {', '.join(EMBEDDER_NAMES)}")


RERANKER_NAMES = ("fastembed:MODEL",)


def load_reranker(name: str) -> Reranker:
    """Reranker of this name; its model is loaded on first use. Raises `UnknownAdapter`."""
    kind, _, model = name.partition(":")
    if kind == "fastembed" and model:
        from contexture.adapters.embedders.fastembed import FastEmbedReranker

        return FastEmbedReranker(model)
    raise UnknownAdapter(f"no reranker is called {name!r}; the known ones are {', '.join(RERANKER_NAMES)}")
