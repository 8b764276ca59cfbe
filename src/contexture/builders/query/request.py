"""What a plain query asks for, and how its context is composed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from contexture.errors import InvalidRequest
from contexture.filters import filter_from_json, filter_to_json
from contexture.pipeline.packers import Packer
from contexture.types import Filter

SYSTEM = "Answer from the numbered material and cite it like [1]. Say so when it does not hold the answer."


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryRequest:
    """A question over one collection.

    QueryRequest(query="who repairs the pump?", max_tokens=1_000)
    """

    query: str
    collection: str = "documents"
    max_tokens: int = 2_000
    system: str = SYSTEM
    where: Filter | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryRecipe:
    """How candidates become a prompt.

    `sharpness` is how steeply a passage's worth falls with its score: a passage is worth
    `score ** sharpness` per token, so a few relevant ones beat many that are merely short.
    """

    packer: Packer = Packer.OPTIMAL
    top_k: int = 400
    floor: float = 0.0
    near_duplicate: float = 0.85
    sharpness: float = 4.0
    extracts: int = 3


def request_to_json(request: QueryRequest) -> dict[str, Any]:
    """The request as a JSON object."""
    return {
        "query": request.query,
        "collection": request.collection,
        "max_tokens": request.max_tokens,
        "system": request.system,
        "where": None if request.where is None else filter_to_json(request.where),
    }


def request_from_json(data: Mapping[str, Any]) -> QueryRequest:
    """The request a JSON object says; a field that is missing, unknown or of the wrong kind is named."""
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
