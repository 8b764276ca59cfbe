"""Refuses blocks that cannot be stored, before anything is touched, and mends what can be."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from contexture.errors import InvalidRequest
from contexture.retrieval.prepare import mended, valid
from contexture.types import Json
from contexture.workspace import Block

_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)
LONGEST_ID = 512
"""Characters of an id."""


def checked(blocks: Sequence[Block]) -> list[Block]:
    """The blocks with valid Unicode throughout; what cannot be stored is refused, with its place and the field."""
    seen: dict[str, int] = {}
    for at, block in enumerate(blocks):
        problem = _problem(block)
        if problem:
            raise InvalidRequest(f"blocks[{at}]: {problem}")
        if block.id in seen:
            raise InvalidRequest(f"blocks[{at}]: block {block.id!r} is already blocks[{seen[block.id]}]")
        seen[block.id] = at
    return [_mended(block) for block in blocks]


def check_order(order: float) -> None:
    """Refuse a place among siblings that cannot be compared."""
    if not math.isfinite(order):
        raise InvalidRequest(f"`order` must be a finite number, not {order!r}")


def check_targets(ids: Sequence[str]) -> None:
    """Refuse ids that no block can have."""
    for name in ids:
        if not _nameable(name):
            raise InvalidRequest(f"a block id is a text of 1 to {LONGEST_ID} characters, not {name!r}")


def _problem(block: Block) -> str:
    if not _nameable(block.id):
        return f"`id` must be a text of 1 to {LONGEST_ID} characters without NUL, not {block.id!r}"
    if block.parent is not None and not _nameable(block.parent):
        return f"`parent` of block {block.id!r} cannot be the id of a block: {block.parent!r}"
    if block.parent == block.id:
        return f"block {block.id!r} cannot be its own parent"
    if not math.isfinite(block.order):
        return f"`order` of block {block.id!r} must be a finite number, not {block.order!r}"
    return _readers_problem(block)


def _readers_problem(block: Block) -> str:
    if block.readers is None:
        return ""
    if not block.readers:
        return f"`readers` of block {block.id!r} is empty, so that nobody could read it; leave it out to inherit"
    strange = next((name for name in block.readers if not (_PRINCIPAL.fullmatch(name) and _nameable(name))), None)
    if strange is None:
        return ""
    return f"`readers` of block {block.id!r} may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"


def _nameable(name: str) -> bool:
    return 0 < len(name) <= LONGEST_ID and valid(name) and "\0" not in name


def _mended(block: Block) -> Block:
    properties = _properties(block)
    if valid(block.text) and valid(block.author) and properties is block.properties:
        return block
    return replace(block, text=mended(block.text), author=mended(block.author), properties=properties)


def _properties(block: Block) -> Mapping[str, Json]:
    """The properties, if they are JSON; the same object when there is nothing to mend."""
    if not block.properties:
        return block.properties
    try:
        told = json.dumps(dict(block.properties), allow_nan=False, ensure_ascii=False)
        return block.properties if valid(told) else json.loads(mended(told))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"the properties of block {block.id!r} cannot be stored: {failure}") from failure
