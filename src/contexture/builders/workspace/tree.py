"""Where blocks stand: how far apart, on which page, under which titles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from contexture.pipeline.fence import label
from contexture.workspace import Block, BlockType

BETWEEN = " > "
_CRUMB = 60  # characters of a block's text that name it in a path
_PLACES = frozenset({BlockType.PAGE, BlockType.DB})

Chains = Mapping[str, Sequence[Block]]
"""By id, the parents of a block upwards, as far as the user may read."""


def steps_up(block_id: str, chains: Chains) -> dict[str, int]:
    """By id, how many steps a block and each of its parents stand above the block."""
    return {id_: steps for steps, id_ in enumerate(_line(block_id, chains))}


def distance(block_id: str, other: Mapping[str, int], chains: Chains) -> int | None:
    """Steps along the tree to a block of which `steps_up` is given; None when nothing that may be read joins them."""
    for steps, id_ in enumerate(_line(block_id, chains)):
        if id_ in other:
            return other[id_] + steps
    return None


def page_title(block: Block, chain: Sequence[Block]) -> str:
    """The title of the nearest page or database that a block is, or stands in."""
    for each in (block, *chain):
        if each.type in _PLACES:
            return _plain(each.text)
    return ""


def path(chain: Sequence[Block]) -> tuple[str, ...]:
    """What stands above a block, from the root down; blocks without a text are left out."""
    named = (_crumb(block) for block in reversed(chain))
    return tuple(name for name in named if name)


def joined(crumbs: Sequence[str]) -> str:
    """A path as one line."""
    return BETWEEN.join(crumbs)


def parted(line: str) -> tuple[str, ...]:
    """The path that a line says."""
    return tuple(line.split(BETWEEN)) if line else ()


def _line(block_id: str, chains: Chains) -> list[str]:
    return [block_id, *(block.id for block in chains.get(block_id, ()))]


def _crumb(block: Block) -> str:
    return _plain(block.text, _CRUMB)


@lru_cache(maxsize=8_192)
def _plain(text: str, limit: int = 120) -> str:
    """A text as a label; kept, because what stands above one block stands above its neighbours too."""
    return label(text.replace(">", " "), limit)
