"""The request of a plain query, `QueryRecipe`, and the JSON form stored in capsules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from contexture.errors import InvalidRequest
from contexture.filters import filter_from_json, filter_to_json
from contexture.pipeline.knapsack import Packer
from contexture.types import Filter

SYSTEM_PROMPT = "Answer from the numbered material and cite it like [1]. Say so when it does not hold the answer."


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryRequest:
    """A question over one collection.

    QueryRequest(query="who repairs the pump?", max_tokens=1_000)
    """

    query: str
    collection: str = "documents"
    max_tokens: int = 2_000
    system: str = SYSTEM_PROMPT
    where: Filter | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryRecipe:
    """Settings for composing a query prompt.

    `sharpness` is how steeply a passage's value falls with its score: its value is
    `score ** sharpness` per token, so a few relevant passages are preferred to many that are merely short.
    """

    packer: Packer = Packer.OPTIMAL
    top_k: int = 400
    floor: float = 0.0
    near_duplicate: float = 0.85
    sharpness: float = 4.0
    extracts: int = 3


def query_to_json(request: QueryRequest) -> dict[str, Any]:
    """The request as the JSON object a capsule stores."""
    return {
        "query": request.query,
        "collection": request.collection,
        "max_tokens": request.max_tokens,
        "system": request.system,
        "where": None if request.where is None else filter_to_json(request.where),
    }


def query_from_json(data: Mapping[str, Any]) -> QueryRequest:
    """Parse a JSON object into a request.

    Raises `InvalidRequest` naming a field that is missing, unknown or of the wrong type.
    """
    known = {field.name for field in fields(QueryRequest)}
    if unknown := sorted(set(data) - known):
        raise InvalidRequest(f"unknown field {unknown[0]!r}; a query has {', '.join(sorted(known))}")
    if not isinstance(data.get("query"), str):
        raise InvalidRequest("field 'query' must be a text")
    for name, kind in (("collection", str), ("system", str), ("max_tokens", int)):
        if name in data and (not isinstance(data[name], kind) or isinstance(data[name], bool)):
            raise InvalidRequest(f"field {name!r} must be {'a text' if kind is str else 'a whole number'}")
    where = data.get("where")
    given = {name: data[name] for name in ("collection", "system", "max_tokens") if name in data}
    return QueryRequest(query=data["query"], where=None if where is None else filter_from_json(where), **given)
