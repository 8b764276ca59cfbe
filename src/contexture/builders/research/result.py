"""What a research builder returns.

`ResearchContext`, `SourceDocument`, and search results as plain JSON objects, each page once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast
from urllib.parse import quote

import msgspec
from typing_extensions import TypedDict

from contexture.capsule import Capsule
from contexture.errors import InvalidRequest
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.pages.values import StoredPage
from contexture.results import Digest, JsonResult
from contexture.types import ChatMessage, Citation, Message


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A page as a source: its shown content, its location and its relevance score.

    `markdown_content` is redacted; when it is shortened, an ellipsis marks each omission. `citations` are the character
    ranges of the stored page that it shows.
    """

    doc_id: str
    filename: str
    page: int
    extension: str
    thumbnail_path: str | None = None
    image_path: str | None = None
    timestamp: str = ""
    section_path: str | None = None
    parent_heading: str | None = None
    markdown_content: str = ""
    relevance_score: float = 0.0
    citations: tuple[Citation, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The source as a JSON object."""
        return msgspec.to_builtins(self)


@dataclass(frozen=True, slots=True)
class SourceJson(SourceDocument):
    """A page that research found, with the URLs of its images at the service."""

    thumbnail_url: str | None = None
    image_url: str | None = None


class ResearchContextJson(TypedDict):
    """The context of a research question."""

    build_id: str
    query: str | None
    search_mode: str | None
    formatted_text: str
    sources: list[SourceJson]
    total_tokens: int
    max_tokens: int | None
    truncated: bool
    encoding: str
    exact: bool
    messages: tuple[ChatMessage, ...]
    citations: tuple[Citation, ...]
    ledger: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...]
    digest: Digest | None


@dataclass(frozen=True, slots=True)
class ResearchContext(JsonResult):
    """Numbered sources as one text for a prompt, its token count, its ledger, and the capsule that rebuilds it.

    `total_tokens` counts `formatted_text` including headers. `truncated` is True exactly when a source was shortened
    or dropped because of the token budget. `messages` are the whole prompt including that text. `pictured` are the
    numbers of the sources whose page images may be shown too: their text was scanned and nothing in it was redacted.
    """

    formatted_text: str
    sources: list[SourceDocument]
    total_tokens: int
    truncated: bool
    build_id: str = ""
    messages: tuple[Message, ...] = ()
    encoding: str = ""
    exact: bool = True
    ledger: Ledger = field(default_factory=lambda: Ledger(entries=()))
    capsule: Capsule | None = None
    pictured: tuple[int, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)

    def get_citation_map(self) -> dict[int, SourceDocument]:
        """The sources by their numbers, from 1."""
        return dict(enumerate(self.sources, start=1))

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations of this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of everything that is shown, in source order."""
        return tuple(citation for source in self.sources for citation in source.citations)

    def json_form(self) -> ResearchContextJson:
        """The context with its ledger, without timings, so that equal builds give equal bytes."""
        asked = self.capsule.request if self.capsule else {}
        return {
            "build_id": self.build_id,
            "query": asked.get("query"),
            "search_mode": asked.get("search_mode"),
            "formatted_text": self.formatted_text,
            "sources": sources_to_json(self.sources),
            "total_tokens": self.total_tokens,
            "max_tokens": asked.get("max_tokens"),
            "truncated": self.truncated,
            "encoding": self.encoding,
            "exact": self.exact,
            "messages": cast("tuple[ChatMessage, ...]", self.messages),
            "citations": self.citations,
            "ledger": self.ledger.entries,
            "degradations": self.degradations,
            "digest": self.capsule.digest if self.capsule else None,
        }


def sources_to_json(sources: Sequence[SourceDocument]) -> list[SourceJson]:
    """Sources as they are sent, with the URLs of their page images."""
    return [_source_to_json(source) for source in sources]


def _source_to_json(source: SourceDocument) -> SourceJson:
    place = f"/v1/pages/{quote(source.doc_id, safe='')}/{source.page}"
    return SourceJson(
        **{each.name: getattr(source, each.name) for each in fields(source)},
        thumbnail_url=f"{place}/thumb" if source.thumbnail_path else None,
        image_url=f"{place}/image" if source.image_path else None,
    )


def deduplicate_results(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One result per `doc_id` and `page`, unchanged and with the best score, best first.

    Of equal scores, the earlier result is kept and comes first.
    """
    best: dict[tuple[object, object], tuple[float, dict[str, Any]]] = {}
    for result in results:
        key, score = _result_key(result), _result_score(result)
        if key not in best or score > best[key][0]:
            best[key] = (score, result)
    return [result for _, result in sorted(best.values(), key=lambda scored: -scored[0])]


def make_search_result(source: SourceDocument, page: StoredPage) -> dict[str, Any]:
    """A found page as a plain JSON object with its stored metadata."""
    fields = {
        "doc_id": source.doc_id,
        "filename": source.filename,
        "page": source.page,
        "extension": source.extension,
        "timestamp": source.timestamp,
        "image_path": source.image_path,
        "thumb_path": source.thumbnail_path,
        "section_path": source.section_path,
        "parent_heading": source.parent_heading,
        "num_headings": page.num_headings,
        "num_tables": page.num_tables,
        "num_pictures": page.num_pictures,
    }
    return {
        **{name: fields[name] for name in ("doc_id", "page", "filename")},
        "score": source.relevance_score,
        "metadata": fields,
    }


def _result_key(result: Mapping[str, Any]) -> tuple[object, object]:
    try:
        return result["doc_id"], result["page"]
    except KeyError as missing:
        raise InvalidRequest(f"a search result has no {missing.args[0]!r}") from missing


def _result_score(result: Mapping[str, Any]) -> float:
    score: object = result.get("score", 0.0)
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise InvalidRequest(f"the score of a search result must be a number, not {score!r}")
    return float(score) if score == score else float("-inf")  # noqa: PLR0124 - NaN sorts below every number
