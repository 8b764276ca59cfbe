"""What a research question asks for, and how its context is composed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from contexture.errors import InvalidRequest
from contexture.filters import check_form, filter_from_json, filter_to_json
from contexture.types import Filter

MAX_SOURCES = 10
MAX_TOKENS = 10_000
MOST_RESULTS = 100
MOST_TOKENS = 100_000_000
SYSTEM = (
    "Answer the research question from the numbered documents only. "
    "Put the number of its document behind every statement, like [1] or [2, 3]. "
    "Copy figures and names exactly, and say so when the documents do not hold the answer."
)


class SearchMode(StrEnum):
    """Which collections are searched."""

    HYBRID = "hybrid"
    TEXT = "text"
    VISUAL = "visual"


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchRequest:
    """A question over the pages of documents.

    ResearchRequest(query="What are the benefits of renewable energy?", num_results=5)
    """

    query: str
    num_results: int = 10
    include_text: bool = True
    include_visual: bool = True
    max_sources: int = MAX_SOURCES
    max_tokens: int = MAX_TOKENS
    where: Filter | None = None

    @property
    def mode(self) -> SearchMode:
        """Which collections are searched, in one word."""
        if self.include_text:
            return SearchMode.HYBRID if self.include_visual else SearchMode.TEXT
        return SearchMode.VISUAL


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchRecipe:
    """How pages become a context.

    When they do not all fit, each is first shortened to its share of the budget, but to no less than `least` tokens
    and to no more than `short`, and the best of them then get back what is left over. Where fewer than `shortest` are
    left for a page, header included, it is left out. `spare` more pages than asked for are looked at, so that copies
    of a page do not cost a source.
    """

    near_duplicate: float = 0.9
    short: int = 160
    least: int = 64
    shortest: int = 24
    spare: int = 5
    system: str = SYSTEM


def checked(request: ResearchRequest) -> ResearchRequest:
    """The same request, once it can be worked with; what is wrong is named."""
    if not isinstance(request.query, str) or not request.query.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidRequest("the query is empty")
    if not (request.include_text or request.include_visual):
        raise InvalidRequest("include_text and include_visual are both false: there is nothing to search")
    _check_count("num_results", request.num_results, MOST_RESULTS)
    _check_count("max_sources", request.max_sources, MOST_RESULTS)
    _check_count("max_tokens", request.max_tokens, MOST_TOKENS)
    if request.where is not None:
        check_form(request.where)
    return request


def _check_count(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidRequest(f"{name} must be a whole number from 1 to {most}, not {value!r}")


def flags_of(mode: str) -> tuple[bool, bool]:
    """Whether text and looks are searched in a mode; a mode that is not known is refused."""
    if mode not in list(SearchMode):
        raise InvalidRequest(f"search_mode is {mode!r}; it can be {', '.join(SearchMode)}")
    return mode != SearchMode.VISUAL, mode != SearchMode.TEXT


def request_to_json(request: ResearchRequest) -> dict[str, Any]:
    """The request as a JSON object."""
    return {
        "query": request.query,
        "num_results": request.num_results,
        "include_text": request.include_text,
        "include_visual": request.include_visual,
        "search_mode": request.mode.value,
        "max_sources": request.max_sources,
        "max_tokens": request.max_tokens,
        "where": None if request.where is None else filter_to_json(request.where),
    }


def request_from_json(data: Mapping[str, Any]) -> ResearchRequest:
    """The request that `request_to_json` wrote; a field that is missing or of the wrong kind is refused."""
    where = data.get("where")
    try:
        request = ResearchRequest(
            query=data["query"],
            num_results=data["num_results"],
            include_text=bool(data["include_text"]),
            include_visual=bool(data["include_visual"]),
            max_sources=data["max_sources"],
            max_tokens=data["max_tokens"],
            where=None if where is None else filter_from_json(where),
        )
    except KeyError as missing:
        raise InvalidRequest(f"this research request has no {missing.args[0]!r}") from missing
    return checked(request)
