"""What goes into the answering of a research question and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec

from contexture.answer.research.markers import RemovedMarker
from contexture.answer.research.support import Unsupported
from contexture.builders.research.request import flags_of
from contexture.builders.research.values import ResearchContext
from contexture.errors import InvalidRequest
from contexture.filters import filter_from_json
from contexture.ledger import Degradation
from contexture.types import Citation, Filter

MODE = "search_mode"
_ANSWERING = ("attach_images", "model")
_KINDS: Mapping[str, type] = {
    "query": str,
    MODE: str,
    "model": str,
    "num_results": int,
    "max_tokens": int,
    "attach_images": int,
    "include_text": bool,
    "include_visual": bool,
    "where": dict,
}
_SPOKEN = {str: "a text", int: "a whole number", bool: "true or false", dict: "an object"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchQuestion:
    """A question over the pages of documents.

    ResearchQuestion(query="What did the pilot plant cost?", num_results=5)

    `max_tokens` is the budget of the context, pictures included; `attach_images` is how many pages are also shown
    as pictures to a model that sees. `model` names one of the models that are configured.
    """

    query: str
    num_results: int = 10
    include_text: bool = True
    include_visual: bool = True
    max_tokens: int | None = None
    attach_images: int = 0
    model: str | None = None
    where: Filter | None = None


def question_of(data: Mapping[str, Any], *, answering: bool) -> ResearchQuestion:
    """The question a JSON object asks; a field that is missing, unknown or of the wrong kind is named.

    `search_mode` is short for the two `include_` fields. Only a question that is to be answered has a model.
    """
    known = [name for name in _names() if answering or name not in _ANSWERING]
    if unknown := sorted(set(data) - set(known)):
        raise InvalidRequest(f"unknown field {unknown[0]!r}; a research question has {', '.join(known)}")
    given = {name: value for name, value in data.items() if value is not None}
    for name, value in given.items():
        kind = _KINDS[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InvalidRequest(f"field {name!r} must be {_SPOKEN[kind]}")
    if "query" not in given:
        raise InvalidRequest("field 'query' is missing")
    if MODE in given:
        given = _by_mode(given)
    if "where" in given:
        given["where"] = filter_from_json(given["where"])
    return ResearchQuestion(**given)


def _names() -> list[str]:
    return [*(field.name for field in fields(ResearchQuestion)), MODE]


def _by_mode(given: dict[str, Any]) -> dict[str, Any]:
    if "include_text" in given or "include_visual" in given:
        raise InvalidRequest(f"give {MODE!r}, or 'include_text' and 'include_visual', not both")
    text, visual = flags_of(given[MODE])
    rest = {name: value for name, value in given.items() if name != MODE}
    return {**rest, "include_text": text, "include_visual": visual}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchAnswer:
    """A cited answer, checked against its sources.

    Every marker in `answer` points at one of the context's sources. `extractive` says that its sentences are the
    sources' own. `total_tokens` counts the sources and the pictures that were shown.
    """

    answer: str
    context: ResearchContext
    model: str
    extractive: bool
    cited: tuple[int, ...]
    removed_markers: tuple[RemovedMarker, ...]
    unsupported: tuple[Unsupported, ...]
    images: tuple[int, ...]
    total_tokens: int
    degradations: tuple[Degradation, ...]

    @property
    def build_id(self) -> str:
        """The build of its context, for `explain` and `replay`."""
        return self.context.build_id

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Where what is shown of the sources that the answer names stands in the store."""
        sources = self.context.get_citation_map()
        return tuple(citation for number in self.cited for citation in sources[number].citations)

    def to_dict(self) -> dict[str, Any]:
        """The answer as routes and the command line give it; nothing in it is a timing."""
        return {
            "answer": self.answer,
            "sources": [source.to_dict() for source in self.context.sources],
            "truncated": self.context.truncated,
            "total_tokens": self.total_tokens,
            "cited": list(self.cited),
            "citations": msgspec.to_builtins(self.citations),
            "removed_markers": [asdict(removed) for removed in self.removed_markers],
            "unsupported": [asdict(each) for each in self.unsupported],
            "model": self.model,
            "extractive": self.extractive,
            "images": list(self.images),
            "degradations": [asdict(lost) for lost in self.degradations],
            "build_id": self.build_id,
        }
