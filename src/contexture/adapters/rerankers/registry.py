"""Turns the name of a reranker into the reranker."""

from __future__ import annotations

from contexture.errors import UnknownAdapter
from contexture.ports import Reranker

KNOWN = ("fastembed:MODEL",)


def load(name: str) -> Reranker:
    """The reranker of this name; its model is loaded on first use."""
    kind, _, model = name.partition(":")
    if kind == "fastembed" and model:
        from contexture.adapters.rerankers.fastembed import FastEmbedReranker

        return FastEmbedReranker(model)
    raise UnknownAdapter(f"no reranker is called {name!r}; the known ones are {', '.join(KNOWN)}")
