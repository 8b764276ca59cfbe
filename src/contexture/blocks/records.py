"""A block as a record of the index."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.blocks.columns import schema_of
from contexture.blocks.render import plain
from contexture.types import PUBLIC, Collection, FieldType, Record
from contexture.workspace import Block, BlockType, Stale, done_of, due_of

BLOCKS = Collection(
    name="blocks",
    fields={
        "page": FieldType.KEYWORD,
        "parent": FieldType.KEYWORD,
        "db": FieldType.KEYWORD,
        "type": FieldType.KEYWORD,
        "author": FieldType.KEYWORD,
        "due": FieldType.TIME,
        "done": FieldType.FLAG,
    },
)
"""Where blocks are searched; filters also name `time`, which is when a block was last modified, `kind` and `lang`."""

_SILENT = (BlockType.DIVIDER,)
_HOMES = (BlockType.PAGE, BlockType.DB)
_TASKS = (BlockType.TODO, BlockType.KANBAN_CARD, BlockType.DB_ROW)


def record_of(stale: Stale) -> Record | None:
    """The search record of a block, or None when it is gone or has nothing to find."""
    block = stale.block
    text = words_of(block, stale.ancestors) if block is not None else ""
    if block is None or not text:
        return None
    above = surely_read(block, stale.ancestors)
    home = home_of(block, above)
    return Record(
        id=block.id,
        text=text,
        acl=tuple(sorted(set(block.acl))),
        title=home.text if home else "",
        kind=str(block.type),
        time=block.modified,
        payload=_payload(block, above, home),
    )


def words_of(block: Block, ancestors: Sequence[Block]) -> str:
    """What a block's search record says; empty where it has none. `ancestors` may end where a reader's view does.

    Only its database tells which cells of a row name other rows, so a row has cells only for those who read both.
    """
    if block.type in _SILENT:
        return ""
    above = surely_read(block, ancestors)
    if block.type is BlockType.DB_ROW and not (above and above[0].type is BlockType.DB):
        return block.text.strip()
    said = plain(block, schema_of(above[0] if above else None))
    return said if said.strip() else ""


def surely_read(block: Block, ancestors: Sequence[Block]) -> Sequence[Block]:
    """The parents upwards that everyone who reads the block may read; a record must name no other to its readers."""
    wide = 0
    for each in ancestors:
        if PUBLIC not in each.acl and not set(block.acl) <= set(each.acl):
            break
        wide += 1
    return ancestors[:wide]


def home_of(block: Block, above: Sequence[Block]) -> Block | None:
    """The page or database a block belongs to: itself, or the nearest above, which may also be a row."""
    if block.type in _HOMES:
        return block
    return next((each for each in above if each.type in _HOMES or each.type is BlockType.DB_ROW), None)


def _payload(block: Block, above: Sequence[Block], home: Block | None) -> dict[str, object]:
    due = due_of(block)
    told: dict[str, object] = {"type": str(block.type), "author": block.author}
    if home is not None:
        told["page"] = home.id
    if above:
        told["parent"] = above[0].id
    if block.type is BlockType.DB_ROW and above and above[0].type is BlockType.DB:
        told["db"] = above[0].id
    if due is not None:
        told["due"] = due.isoformat()
    if block.type in _TASKS:
        told["done"] = done_of(block)
    return told
