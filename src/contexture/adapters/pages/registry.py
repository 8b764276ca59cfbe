"""Loads page encoders by name."""

from __future__ import annotations

from collections.abc import Callable

from contexture.adapters.pages._regions import RegionEncoder, TextEmbedders
from contexture.documents import PageEncoder
from contexture.errors import UnknownAdapter

KNOWN = ("regions", "colpali:MODEL", "colpali:FOLDER")


def load(name: str, embedders: TextEmbedders, detect: Callable[[str], str], *, threads: int) -> PageEncoder:
    """Page encoder of this name; a model is loaded on first use. Raises `UnknownAdapter`.

    `embedders` are the text embedders, used for regions, and `detect` returns the language of a text.
    """
    kind, _, model = name.partition(":")
    match kind, model:
        case "regions", "":
            return RegionEncoder(embedders, detect)
        case "colpali", str() if model:
            from contexture.adapters.pages.colpali import ColPaliEncoder

            return ColPaliEncoder(model, threads=threads)
        case _:
            raise UnknownAdapter(f"no page encoder is called {name!r}; the known ones are {', '.join(KNOWN)}")
