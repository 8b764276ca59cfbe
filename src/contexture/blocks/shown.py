"""What a block says where it is shown: a page its summary, a database its columns, a row its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from contexture.blocks.columns import schema_of
from contexture.blocks.render import Resolver, markdown, unresolved
from contexture.retrieval.prepare import mended
from contexture.types import Json
from contexture.workspace import Block, BlockType


def shown(block: Block, above: Sequence[Block], *, resolve: Resolver = unresolved, summary: str = "") -> str:
    """The block as a reader sees it; `above` are its parents upwards, as far as they may be read."""
    match block.type:
        case BlockType.PAGE:
            said = summary or block.text
        case BlockType.DB:
            said = "\n".join([block.text, *_columns(schema_of(block))])
        case BlockType.HEADING:
            said = block.text
        case BlockType.DB_ROW:
            said = _row(block, above, resolve)
        case _:
            said = markdown(block)
    return mended(said)


def _row(row: Block, above: Sequence[Block], resolve: Resolver) -> str:
    """A row with its cells; where its database cannot be read, a cell may name what cannot be read either."""
    if not above or above[0].type is not BlockType.DB:
        return markdown(replace(row, properties={}))
    return markdown(row, schema=schema_of(above[0]), resolve=resolve)


def _columns(schema: Mapping[str, Json]) -> list[str]:
    kinds = {name: kind.get("type") if isinstance(kind, dict) else kind for name, kind in schema.items()}
    return [f"{name}: {kind}" for name, kind in kinds.items() if isinstance(kind, str)]
