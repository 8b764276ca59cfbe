"""Search results as plain objects: each page once, by its best score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contexture.builders.research.values import SourceDocument
from contexture.errors import InvalidRequest
from contexture.pages.values import StoredPage


def deduplicate(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One result per `doc_id` and `page`, the best-scored one with all it carries, best first.

    Of equal scores the earlier one stays, and comes first.
    """
    best: dict[tuple[object, object], tuple[float, dict[str, Any]]] = {}
    for result in results:
        key, score = _key(result), _score(result)
        if key not in best or score > best[key][0]:
            best[key] = (score, result)
    return [result for _, result in sorted(best.values(), key=lambda scored: -scored[0])]


def result_of(source: SourceDocument, page: StoredPage) -> dict[str, Any]:
    """A page that was found, as a plain object with the metadata that is stored with it."""
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


def _key(result: Mapping[str, Any]) -> tuple[object, object]:
    try:
        return result["doc_id"], result["page"]
    except KeyError as missing:
        raise InvalidRequest(f"a search result has no {missing.args[0]!r}") from missing


def _score(result: Mapping[str, Any]) -> float:
    score: object = result.get("score", 0.0)
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise InvalidRequest(f"the score of a search result must be a number, not {score!r}")
    return float(score) if score == score else float("-inf")  # noqa: PLR0124 - not a number is below every number
