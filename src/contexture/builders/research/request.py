"""The request of a research question, `ResearchRecipe`, validation, and the JSON form stored in capsules."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from contexture.builders.replay import read_recipe
from contexture.capsule import Capsule
from contexture.errors import InvalidRequest
from contexture.filters import check_form, filter_from_json, filter_to_json
from contexture.pipeline.fence import FENCE_VERSION, MaterialRole
from contexture.types import Filter

MAX_SOURCES = 10
MAX_TOKENS = 10_000
RESULTS_LIMIT = 100
TOKENS_LIMIT = 100_000_000
SYSTEM_PROMPT = (
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
        """The search mode that `include_text` and `include_visual` amount to."""
        if self.include_text:
            return SearchMode.HYBRID if self.include_visual else SearchMode.TEXT
        return SearchMode.VISUAL


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchRecipe:
    """Settings for composing a research context.

    When not all pages fit, each is first shortened to its share of the budget, at least `least` and at most `short`
    tokens; the remaining tokens then go to the best pages. A page that would get fewer than `shortest` tokens,
    including its header, is dropped. `spare` more pages than requested are retrieved, so that duplicates of a page do
    not reduce the number of sources. `material_role` is the role of the message with the sources.
    """

    near_duplicate: float = 0.9
    short: int = 160
    least: int = 64
    shortest: int = 24
    spare: int = 5
    system: str = SYSTEM_PROMPT
    material_role: MaterialRole = MaterialRole.USER
    fence_version: int = FENCE_VERSION


def check_request(request: ResearchRequest) -> ResearchRequest:
    """The request itself, once valid; raises `InvalidRequest` naming what is wrong."""
    if not isinstance(request.query, str) or not request.query.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidRequest("the query is empty")
    if not (request.include_text or request.include_visual):
        raise InvalidRequest("include_text and include_visual are both false: there is nothing to search")
    _check_count("num_results", request.num_results, RESULTS_LIMIT)
    _check_count("max_sources", request.max_sources, RESULTS_LIMIT)
    _check_count("max_tokens", request.max_tokens, TOKENS_LIMIT)
    if request.where is not None:
        check_form(request.where)
    return request


def _check_count(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidRequest(f"{name} must be a whole number from 1 to {most}, not {value!r}")


def parse_search_mode(mode: str) -> tuple[bool, bool]:
    """`(text, visual)` of a search mode; raises `InvalidRequest` for an unknown mode."""
    if mode not in list(SearchMode):
        raise InvalidRequest(f"search_mode is {mode!r}; it can be {', '.join(SearchMode)}")
    return mode != SearchMode.VISUAL, mode != SearchMode.TEXT


def research_to_json(request: ResearchRequest) -> dict[str, Any]:
    """The request as the JSON object a capsule stores."""
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


def research_from_json(data: Mapping[str, Any]) -> ResearchRequest:
    """The inverse of `research_to_json`; raises `InvalidRequest` for a missing or invalid field."""
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
    return check_request(request)


CAPSULE_KIND = "research"


def read_research_recipe(capsule: Capsule) -> ResearchRecipe:
    """The recipe a research capsule was built with; raises `InvalidRequest` when it has none."""
    return read_recipe(capsule, ResearchRecipe, "a recipe for research")
