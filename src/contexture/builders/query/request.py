"""The requests of a plain query and of a search, `QueryRecipe`, and the JSON form of a query stored in capsules."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from contexture.filters import FilterField, filter_to_json
from contexture.json_objects import NOT_BLANK, parse_object
from contexture.pipeline.fence import FENCE_VERSION, MaterialRole
from contexture.pipeline.knapsack import Packer

SYSTEM_PROMPT = "Answer from the numbered material and cite it like [1]. Say so when it does not hold the answer."


CollectionField: TypeAlias = Annotated[str, Meta(description="Collection to search; the configured one if left out.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryRequest:
    """A question over one collection.

    QueryRequest(query="who repairs the pump?", max_tokens=1_000)
    """

    query: Annotated[
        str,
        Meta(description="The question; not blank.", examples=["Who repairs the pump?"], extra_json_schema=NOT_BLANK),
    ]
    collection: CollectionField = "documents"
    max_tokens: Annotated[
        int,
        Meta(ge=1, description="Token budget of the prompt; the configured one if left out.", examples=[1_000]),
    ] = 2_000
    system: Annotated[str, Meta(description="Instructions before the context.")] = SYSTEM_PROMPT
    where: FilterField = None
    model: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Model or encoding whose tokens are counted; the configured one if left out."),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRequest:
    """What to look for in one collection.

    SearchRequest(query="pump", limit=5)
    """

    query: Annotated[
        str, Meta(description="What to look for; not blank.", examples=["pump"], extra_json_schema=NOT_BLANK)
    ]
    collection: CollectionField = ""
    where: FilterField = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Passages to return, 10 if left out.", examples=[5])] = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryRecipe:
    """Settings for composing a query prompt.

    `sharpness` is how steeply a passage's value falls with its score: its value is
    `score ** sharpness` per token, so a few relevant passages are preferred to many that are merely short.
    `material_role` is the role of the message with the passages.
    """

    packer: Packer = Packer.OPTIMAL
    top_k: int = 400
    floor: float = 0.0
    near_duplicate: float = 0.85
    sharpness: float = 4.0
    extracts: int = 2
    material_role: MaterialRole = MaterialRole.USER
    fence_version: int = FENCE_VERSION


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

    Raises `InvalidRequest` naming every field that is missing, unknown or invalid.
    """
    return parse_object(QueryRequest, data, what="a query")


def parse_search(data: Mapping[str, Any]) -> SearchRequest:
    """Parse a JSON object into what to look for; raises `InvalidRequest` as `query_from_json` does."""
    return parse_object(SearchRequest, data, what="a search")
