"""Positions in the block tree: distance between blocks, title of the page, path of labels."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from contexture.pipeline.fence import safe_label
from contexture.workspace import Block, BlockType

PATH_SEPARATOR = " > "
_MAX_CRUMB_CHARS = 60  # characters of a block's text that name it in a path
_PAGE_TYPES = frozenset({BlockType.PAGE, BlockType.DB})

AncestorChains = Mapping[str, Sequence[Block]]
"""By block id, its ancestors from the parent upwards, as far as the user may read them."""


def ancestor_steps(block_id: str, chains: AncestorChains) -> dict[str, int]:
    """Steps from a block up to itself and each ancestor, by id."""
    return {id_: steps for steps, id_ in enumerate(_self_and_ancestors(block_id, chains))}


def distance(block_id: str, other: Mapping[str, int], chains: AncestorChains) -> int | None:
    """Steps along the tree to a block of which `ancestor_steps` is given.

    None when they have no common ancestor that the user may read.
    """
    for steps, id_ in enumerate(_self_and_ancestors(block_id, chains)):
        if id_ in other:
            return other[id_] + steps
    return None


def page_title(block: Block, chain: Sequence[Block]) -> str:
    """The title of the nearest page or database: the block itself or its nearest such ancestor; empty without one."""
    for each in (block, *chain):
        if each.type in _PAGE_TYPES:
            return _make_label(each.text)
    return ""


def make_path(chain: Sequence[Block]) -> tuple[str, ...]:
    """Labels of the ancestors from the root down, each its first line; blocks without text are left out."""
    named = (_block_label(block) for block in reversed(chain))
    return tuple(name for name in named if name)


def join_path(crumbs: Sequence[str]) -> str:
    """A path as one line."""
    return PATH_SEPARATOR.join(crumbs)


def split_path(line: str) -> tuple[str, ...]:
    """The inverse of `join_path`."""
    return tuple(line.split(PATH_SEPARATOR)) if line else ()


def _self_and_ancestors(block_id: str, chains: AncestorChains) -> list[str]:
    return [block_id, *(block.id for block in chains.get(block_id, ()))]


def _block_label(block: Block) -> str:
    return _make_label(block.text.strip().partition("\n")[0], _MAX_CRUMB_CHARS)


@lru_cache(maxsize=8_192)
def _make_label(text: str, limit: int = 120) -> str:
    """A text as a label; cached, because neighbouring blocks share their ancestors."""
    return safe_label(text.replace(">", " "), limit)
