"""What a research builder returns.

`ResearchContext`, `SourceDocument`, and search results as plain JSON objects, each page once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from contexture.capsule import Capsule
from contexture.errors import InvalidRequest
from contexture.ledger import Degradation, Ledger
from contexture.pages.values import StoredPage
from contexture.types import Citation, Message


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
        return {
            "doc_id": self.doc_id,
            "filename": self.filename,
            "page": self.page,
            "extension": self.extension,
            "thumbnail_path": self.thumbnail_path,
            "image_path": self.image_path,
            "timestamp": self.timestamp,
            "section_path": self.section_path,
            "parent_heading": self.parent_heading,
            "markdown_content": self.markdown_content,
            "relevance_score": self.relevance_score,
            "citations": msgspec.to_builtins(self.citations),
        }


@dataclass(frozen=True, slots=True)
class ResearchContext:
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
    told = {
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
        **{name: told[name] for name in ("doc_id", "page", "filename")},
        "score": source.relevance_score,
        "metadata": told,
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
