"""What the routes of blocks take and answer; the specification's camelCase names are understood beside our own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, AwareDatetime, BaseModel, ConfigDict, Field

from contexture.types import Json
from contexture.workspace import Block, BlockType

_MOST = 10_000

Id = Annotated[str, Field(min_length=1)]


class BlockBody(BaseModel):
    """One block; `readers` lists who may read it, and without it they are those of its parent."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[Id, Field(validation_alias=AliasChoices("id", "blockId"))]
    type: Annotated[BlockType, Field(validation_alias=AliasChoices("type", "blockType"))] = BlockType.PARAGRAPH
    text: Annotated[str, Field(validation_alias=AliasChoices("text", "content"))] = ""
    parent: Annotated[Id | None, Field(validation_alias=AliasChoices("parent", "parentId"))] = None
    order: float = 0.0
    properties: dict[str, Any] = {}
    readers: list[str] | None = None
    author: str = ""
    created: Annotated[AwareDatetime | None, Field(validation_alias=AliasChoices("created", "createdAt"))] = None
    modified: Annotated[AwareDatetime | None, Field(validation_alias=AliasChoices("modified", "lastModified"))] = None

    def block(self) -> Block:
        """The block as the workspace knows it."""
        return Block(
            id=self.id,
            type=self.type,
            text=self.text,
            parent=self.parent,
            order=self.order,
            properties=self.properties,
            readers=None if self.readers is None else tuple(self.readers),
            author=self.author,
            created=self.created,
            modified=self.modified,
        )


class BlocksBody(BaseModel):
    """Blocks to write, all of them or none; parents may come behind their children."""

    model_config = ConfigDict(extra="forbid")

    blocks: Annotated[list[BlockBody], Field(max_length=_MOST)]


class RemoveBody(BaseModel):
    """Blocks to remove, with all that stands below them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[list[str], Field(max_length=_MOST)]


class MoveBody(BaseModel):
    """Where a block goes: below `parent`, or to the top without one, at `order` among its siblings."""

    model_config = ConfigDict(extra="forbid")

    parent: Annotated[Id | None, Field(validation_alias=AliasChoices("parent", "parentId"))] = None
    order: float = 0.0


def block_row(block: Block) -> dict[str, Json]:
    """A block as these routes take it; what it does not say is left out."""
    told: dict[str, Json] = {
        "id": block.id,
        "type": str(block.type),
        "text": block.text,
        "parent": block.parent,
        "order": block.order,
        "properties": dict(block.properties),
        "readers": None if block.readers is None else list(block.readers),
        "author": block.author,
        "created": None if block.created is None else block.created.isoformat(),
        "modified": None if block.modified is None else block.modified.isoformat(),
    }
    return {name: value for name, value in told.items() if value is not None}
