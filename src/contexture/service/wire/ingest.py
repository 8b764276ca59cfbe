"""Articles and blocks as the ingest routes accept them, and the reports they return."""

from typing import Annotated, Any, NotRequired, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from contexture.blocks.workspace import MAX_ID_LENGTH
from contexture.ingestion.articles import ArticleRow
from contexture.ingestion.loader import LoadReport
from contexture.results import FreeJson
from contexture.service._openapi import AnySpelling, JsonField, PrincipalField, TimeField, describe_row
from contexture.service.wire.builds import LoadReportJson, load_report_object
from contexture.types import PUBLIC
from contexture.workspace import Block, BlockType, ImportAccess

_MAX_ARTICLES = 10_000


class ArticlesBody(BaseModel):
    """Articles to write, each as a row of a JSONL file; `readers` is for those that name none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "articles": [
                        {
                            "id": "a1",
                            "title": "Pump strike",
                            "text": "The pump strike goes on.",
                            "date": "2026-01-01T10:00:00Z",
                            "source": "news.example",
                        }
                    ]
                }
            ]
        },
    )

    articles: Annotated[
        list[Annotated[dict[str, Any], describe_row(ArticleRow, further=False)]],
        Field(max_length=_MAX_ARTICLES, description="The articles; one that is wrong is reported."),
    ]
    readers: Annotated[
        list[PrincipalField],
        Field(description="Principals that may read the articles that name none."),
    ] = [PUBLIC]


class RemoveArticlesBody(BaseModel):
    """Articles to remove."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"ids": ["a1"]}]})

    ids: Annotated[list[str], Field(max_length=_MAX_ARTICLES)]


def articles_report_object(report: LoadReport) -> LoadReportJson:
    """Return the outcome of the articles that were read."""
    return {**load_report_object(report), "collapsed": report.collapsed}


_MAX_BLOCKS = 10_000

BlockIdField = Annotated[str, Field(min_length=1, json_schema_extra={"maxLength": MAX_ID_LENGTH})]


class BlockBody(BaseModel):
    """One block; `readers`, `editors` and `managers` are principals, and without them those of its parent apply."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[BlockIdField, Field(validation_alias=AliasChoices("id", "blockId"))]
    type: Annotated[BlockType, Field(validation_alias=AliasChoices("type", "blockType"))] = BlockType.PARAGRAPH
    text: Annotated[str, Field(validation_alias=AliasChoices("text", "content"))] = ""
    parent: Annotated[BlockIdField | None, Field(validation_alias=AliasChoices("parent", "parentId"))] = None
    order: Annotated[float, Field(strict=True)] = 0.0
    properties: Annotated[dict[str, JsonField], Field(description="Properties of any JSON, by name.")] = {}
    readers: Annotated[
        list[PrincipalField] | None,
        Field(description="Who may read it, such as `user:anna` or `public`.", json_schema_extra={"minItems": 1}),
    ] = None
    editors: Annotated[
        list[PrincipalField] | None,
        Field(description="Who may change it; its readers, if neither it nor an ancestor has any."),
    ] = None
    managers: Annotated[
        list[PrincipalField] | None,
        Field(description="Who may change its readers, editors and managers and remove it for good."),
    ] = None
    author: str = ""
    created: Annotated[TimeField | None, Field(validation_alias=AliasChoices("created", "createdAt"))] = None
    modified: Annotated[TimeField | None, Field(validation_alias=AliasChoices("modified", "lastModified"))] = None
    version: Annotated[
        int,
        Field(
            ge=0, le=2**53, strict=True, description="The version that is replaced: another stored one is a conflict."
        ),
        AnySpelling,
    ] = 0

    def to_block(self) -> Block:
        """Convert to a block of the workspace."""
        return Block(
            id=self.id,
            type=self.type,
            text=self.text,
            parent=self.parent,
            order=self.order,
            properties=self.properties,
            readers=None if self.readers is None else tuple(self.readers),
            editors=None if self.editors is None else tuple(self.editors),
            managers=None if self.managers is None else tuple(self.managers),
            author=self.author,
            created=self.created,
            modified=self.modified,
            version=self.version,
        )


class ImportingBody(BaseModel):
    """How an import treats the readers of stored blocks: it may narrow them, and never widens them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"unchanged": ["b"]}]})

    unchanged: Annotated[
        list[str],
        Field(max_length=_MAX_BLOCKS, description="Blocks whose readers the import named alike last time."),
    ] = []

    def to_access(self) -> ImportAccess:
        """The rule that the store applies."""
        return ImportAccess(unchanged=frozenset(self.unchanged))


class BlocksBody(BaseModel):
    """Blocks to write, all of them or none; a parent may follow its children."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "blocks": [
                        {"id": "p", "type": "page", "text": "Pumps"},
                        {"id": "b", "text": "The pump leaks", "parent": "p"},
                    ]
                }
            ]
        },
    )

    blocks: Annotated[list[BlockBody], Field(max_length=_MAX_BLOCKS)]
    importing: Annotated[
        ImportingBody | None,
        Field(description="Set by importers: nobody may read a stored block afterwards who may not read it now."),
    ] = None


class RemoveBlocksBody(BaseModel):
    """Blocks to remove, with everything below them."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"ids": ["b"]}]})

    ids: Annotated[list[str], Field(max_length=_MAX_BLOCKS)]


class MoveBlockBody(BaseModel):
    """Where a block goes: below `parent`, or to the top without one, at `order` among its siblings."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"parent": "p", "order": 2}]})

    parent: Annotated[BlockIdField | None, Field(validation_alias=AliasChoices("parent", "parentId"))] = None
    order: Annotated[float, Field(strict=True)] = 0.0


class BlockJson(TypedDict):
    """A block as it was written, with its version; `parent`, rights and times are there if they were given."""

    id: str
    type: BlockType
    text: str
    parent: NotRequired[str]
    order: float
    properties: FreeJson
    readers: NotRequired[tuple[str, ...]]
    editors: NotRequired[tuple[str, ...]]
    managers: NotRequired[tuple[str, ...]]
    author: str
    created: NotRequired[str]
    modified: NotRequired[str]
    version: NotRequired[int]


def block_object(block: Block) -> BlockJson:
    """Return a block as these routes accept it; empty fields are left out."""
    fields = {
        "id": block.id,
        "type": str(block.type),
        "text": block.text,
        "parent": block.parent,
        "order": block.order,
        "properties": dict(block.properties),
        "readers": None if block.readers is None else list(block.readers),
        "editors": None if block.editors is None else list(block.editors),
        "managers": None if block.managers is None else list(block.managers),
        "author": block.author,
        "created": None if block.created is None else block.created.isoformat(),
        "modified": None if block.modified is None else block.modified.isoformat(),
        "version": block.version or None,
    }
    return cast("BlockJson", {name: value for name, value in fields.items() if value is not None})
