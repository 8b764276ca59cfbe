"""Turns the name of a page encoder into the encoder."""

from __future__ import annotations

from collections.abc import Callable

from contexture.adapters.pages.regions import RegionEncoder, Speakers
from contexture.documents import PageEncoder
from contexture.errors import UnknownAdapter

KNOWN = ("regions", "colpali:MODEL", "colpali:FOLDER")


def load(name: str, speakers: Speakers, detect: Callable[[str], str], *, threads: int) -> PageEncoder:
    """The page encoder of this name; a model is loaded on first use.

    `speakers` are the embedders of texts, which see regions, and `detect` names a text's language.
    """
    kind, _, model = name.partition(":")
    match kind, model:
        case "regions", "":
            return RegionEncoder(speakers, detect)
        case "colpali", str() if model:
            from contexture.adapters.pages.colpali import ColPali

            return ColPali(model, threads=threads)
        case _:
            raise UnknownAdapter(f"no page encoder is called {name!r}; the known ones are {', '.join(KNOWN)}")
