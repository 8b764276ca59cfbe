"""What applications send to, and get from, the routes of a workspace: changes, lists, queries, versions and trash."""

from typing import Annotated, Any, NotRequired

from msgspec import Meta
from msgspec.structs import replace
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from contexture.blocks.table_query import (
    Aggregate,
    AggregateFunction,
    ColumnFilter,
    GroupJson,
    SortKey,
    TableQuery,
)
from contexture.results import FreeJson, Timestamp
from contexture.service._openapi import AnySpelling, JsonField, PrincipalField, TimeField
from contexture.service.wire.ingest import BlockIdField, BlockJson
from contexture.types import ReceiptJson
from contexture.workspace import STATUS_NAMES, Block, BlockType, LinkKind, means_done

MAX_PAGE = 1_000

VersionField = Annotated[
    int,
    Field(ge=0, le=2**53, description="The version that is replaced: another stored one is a conflict; 0 for any."),
    AnySpelling,
]
LimitField = Annotated[int, Field(ge=1, le=MAX_PAGE), AnySpelling]
CursorField = Annotated[str, Field(description="The `next` of the answer before; empty for the first page.")]
_ORDER = Field(strict=True)


class PatchBlockBody(BaseModel):
    """The fields of a block that change; others stay.

    `null` for `parent` makes it a root, and for `readers`, `editors` and `managers` inherits those of its parent.
    `properties` are merged: `null` removes one.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"text": "Call Ada", "properties": {"due": None}}]}
    )

    type: Annotated[BlockType, Field(validation_alias=AliasChoices("type", "blockType"))] = BlockType.PARAGRAPH
    text: Annotated[str, Field(validation_alias=AliasChoices("text", "content"))] = ""
    parent: Annotated[BlockIdField | None, Field(validation_alias=AliasChoices("parent", "parentId"))] = None
    order: Annotated[float, _ORDER] = 0.0
    properties: Annotated[dict[str, JsonField], Field(description="Properties that change; `null` removes one.")] = {}
    readers: Annotated[list[PrincipalField] | None, Field(json_schema_extra={"minItems": 1})] = None
    editors: list[PrincipalField] | None = None
    managers: list[PrincipalField] | None = None
    version: VersionField = 0

    def change(self, block: Block) -> Block:
        """The block with the fields that were given; a new status also sets a stored `done`."""
        given: dict[str, Any] = {
            name: getattr(self, name) for name in self.model_fields_set if name not in ("version", "properties")
        }
        for name in ("readers", "editors", "managers"):
            if given.get(name) is not None:
                given[name] = tuple(given[name])
        merged = {**block.properties, **self.properties}
        status = next((value for name, value in self.properties.items() if name.casefold() in STATUS_NAMES), None)
        if isinstance(status, str) and "done" not in self.properties and isinstance(merged.get("done"), bool):
            merged["done"] = means_done(status)
        properties = {name: value for name, value in merged.items() if value is not None or name not in self.properties}
        return replace(block, **given, properties=properties)


class RevertBlockBody(BaseModel):
    """The earlier version whose type, text and properties a block gets again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": 1}]})

    version: Annotated[int, Field(ge=1, le=2**53), AnySpelling]


class CopyBlockBody(BaseModel):
    """Where the copy goes, and the values of `{{placeholders}}` in its texts."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"parent": "p", "values": {"date": "2026-06-01"}}]}
    )

    parent: Annotated[BlockIdField | None, Field(validation_alias=AliasChoices("parent", "parentId"))] = None
    order: Annotated[float, _ORDER] = 0.0
    values: Annotated[dict[str, str], Field(description="By name, the text of a placeholder `{{name}}`.")] = {}


class ColumnFilterBody(BaseModel):
    """A condition on a column: a property, or `title`, `due`, `done`, `created`, `modified`, `author` or `type`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    column: Annotated[str, Field(min_length=1)]
    equals: Annotated[
        str | float | bool | None, Field(description="The value; `me` is the caller, a person any of the names.")
    ] = None
    any_of: Annotated[list[str | float | bool], Field(description="One of these values.")] = []
    contains: Annotated[str, Field(description="A part of the text, without case.")] = ""
    start: Annotated[str | float | None, Field(description="The smallest value.")] = None
    before: Annotated[str | float | None, Field(description="The value above the largest one.")] = None
    empty: Annotated[bool | None, Field(description="Whether there is no value.")] = None

    def to_filter(self) -> ColumnFilter:
        """The condition."""
        equal = () if self.equals is None else (self.equals,)
        return ColumnFilter(
            column=self.column,
            any_of=(*equal, *self.any_of),
            contains=self.contains,
            start=self.start,
            before=self.before,
            empty=self.empty,
        )


class SortBody(BaseModel):
    """A column to sort by; blocks without a value come last."""

    model_config = ConfigDict(extra="forbid", strict=True)

    column: Annotated[str, Field(min_length=1)]
    descending: bool = False


class AggregateBody(BaseModel):
    """A function over the values of a column, of all blocks and of each group."""

    model_config = ConfigDict(extra="forbid")

    column: Annotated[str, Field(min_length=1)]
    function: AggregateFunction


class TableQueryBody(BaseModel):
    """Which rows of a database, or which tasks, and what to compute of them; all filters hold."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "filter": [{"column": "done", "equals": False}, {"column": "assignee", "equals": "me"}],
                    "sort": [{"column": "due"}],
                    "group_by": ["status"],
                    "limit": 20,
                }
            ]
        },
    )

    filter: Annotated[list[ColumnFilterBody], Field(max_length=20)] = []
    sort: Annotated[list[SortBody], Field(max_length=5)] = []
    group_by: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=5)] = []
    aggregate: Annotated[list[AggregateBody], Field(max_length=10)] = []
    limit: LimitField = 100
    cursor: CursorField = ""

    def to_query(self) -> TableQuery:
        """The query, without its page."""
        return TableQuery(
            filters=tuple(each.to_filter() for each in self.filter),
            sort=tuple(SortKey(column=each.column, descending=each.descending) for each in self.sort),
            group_by=tuple(self.group_by),
            aggregates=tuple(Aggregate(column=each.column, function=each.function) for each in self.aggregate),
        )


class PurgeTrashBody(BaseModel):
    """Blocks deleted before this time are removed for good."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"before": "2026-01-01T00:00:00Z"}]})

    before: TimeField


class BlocksResponse(TypedDict):
    """Blocks in order; `next` is the cursor of the page after this one, and is left out on the last page."""

    blocks: list[BlockJson]
    next: NotRequired[str]


class TableResponse(TypedDict):
    """The first blocks that a query selects, how many there are, and what was computed of all of them."""

    blocks: list[BlockJson]
    total: int
    groups: Annotated[dict[str, list[GroupJson]], Meta(description="By column, its values, most frequent first.")]
    aggregates: FreeJson
    next: NotRequired[str]


class StoredBlockResponse(TypedDict):
    """A block as it is stored now."""

    block: BlockJson


class RevisionJson(TypedDict):
    """What a block said in one version, and who wrote that version when."""

    version: int
    type: BlockType
    text: str
    properties: FreeJson
    user: str
    time: Timestamp


class HistoryResponse(TypedDict):
    """The versions of a block, the current one first."""

    versions: list[RevisionJson]


class BacklinkJson(TypedDict):
    """A block that links to another: in its text, as a reference, or as a relation in the column `name`."""

    block: BlockJson
    kind: LinkKind
    name: str


class BacklinksResponse(TypedDict):
    """The blocks that link to a block, the most recently modified first."""

    links: list[BacklinkJson]


class ChangeJson(TypedDict):
    """The latest change of a block; `user` is empty if nobody of the workspace made it, as with an import."""

    id: str
    type: BlockType
    text: str
    page: Annotated[str, Meta(description="The title of the page or database that the block stands on.")]
    user: str
    time: Timestamp


class ChangesResponse(TypedDict):
    """The latest change of each block, newest first, and how many blocks changed."""

    changes: list[ChangeJson]
    total: int
    next: NotRequired[str]


class DeletionJson(TypedDict):
    """A deletion: its block, who deleted it when, and how many blocks it took that the caller may read."""

    id: str
    type: BlockType
    text: str
    user: str
    time: Timestamp
    blocks: int


class TrashResponse(TypedDict):
    """Deletions, the latest first; the block of each can be restored."""

    deletions: list[DeletionJson]
    next: NotRequired[str]


class PurgedResponse(ReceiptJson):
    """Number of blocks that were removed for good, and the receipt of what was removed where."""

    purged: int
