"""Refuses blocks that cannot be stored, before anything is touched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from contexture.errors import InvalidRequest
from contexture.retrieval.prepare import valid
from contexture.workspace import Block

_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)
LONGEST_ID = 512
"""Characters of an id."""


def check(blocks: Sequence[Block]) -> None:
    """Refuse what cannot be stored, naming its place and the field."""
    seen: dict[str, int] = {}
    for at, block in enumerate(blocks):
        problem = _problem(block)
        if problem:
            raise InvalidRequest(f"blocks[{at}]: {problem}")
        if block.id in seen:
            raise InvalidRequest(f"blocks[{at}]: block {block.id!r} is already blocks[{seen[block.id]}]")
        seen[block.id] = at


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
        return f"`id` must be a text of 1 to {LONGEST_ID} characters in valid Unicode, not {block.id!r}"
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
    strange = next((name for name in block.readers if not (_PRINCIPAL.fullmatch(name) and valid(name))), None)
    if strange is None:
        return ""
    return f"`readers` of block {block.id!r} may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"


def _nameable(name: str) -> bool:
    return 0 < len(name) <= LONGEST_ID and valid(name)
