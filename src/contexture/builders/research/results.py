"""Search results as plain objects: each page once, by its best score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contexture.errors import InvalidRequest


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
