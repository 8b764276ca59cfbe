"""Turns the name of an embedder into the embedder."""

from __future__ import annotations

from contexture.errors import UnknownAdapter
from contexture.ports import Embedder

KNOWN = ("minilm", "use", "fastembed:MODEL", "litellm:MODEL", "litellm:MODEL@DIMENSIONS")


def load(name: str, *, threads: int) -> Embedder:
    """The embedder of this name; its model is loaded on first use.

    `threads` bounds what one call may use, for embedders that run in this process.
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
            from contexture.adapters.embedders.fastembed import FastEmbed

            return FastEmbed(model, threads=threads)
        case "litellm", str() if model:
            from contexture.adapters.embedders.litellm import LiteLLMEmbedder

            return LiteLLMEmbedder.named(model)
        case _:
            raise UnknownAdapter(f"no embedder is called {name!r}; the known ones are {', '.join(KNOWN)}")
