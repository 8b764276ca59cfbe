"""What a page says, in its own sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from contexture.blocks.render import markdown
from contexture.pipeline.extract import extract
from contexture.ports import TokenCounter
from contexture.text.sentences import sentences
from contexture.text.terms import terms
from contexture.workspace import Block, BlockType

SUMMARY_TOKENS = 160
"""How long a summary is where nobody says."""

_HEADS = (BlockType.PAGE, BlockType.HEADING)
_NAMED = 3.0  # times that a word counts which a title or a heading has
_LEAD = 0.3  # what being first is worth, beside about 1 for the words


def summary(page: Block, below: Sequence[Block], counter: TokenCounter, limit: int, *, query: str = "") -> str:
    """The best sentences of the blocks below a page, in their order, in at most `limit` tokens; "" where none fits.

    A sentence is better the more its words recur on the page and in its headings, and the earlier it stands; those
    that share words with the query are better still.
    """
    text = "\n".join(markdown(block) for block in below if block.type not in _HEADS)
    heads = tuple(block.text for block in (page, *below) if block.type in _HEADS)
    return _summarized(text, heads, counter, limit, query)


@lru_cache(maxsize=1_024)
def _summarized(text: str, heads: Sequence[str], counter: TokenCounter, limit: int, query: str) -> str:
    """The summary of a page's text; the same pages come back with every build around them."""
    offsets = sentences(text)
    if not offsets:
        return ""
    weights = _weights([text[start:end] for start, end in offsets], heads, query)
    return extract(text, offsets, query, counter, limit, weights=weights).text


def _weights(pieces: Sequence[str], heads: Sequence[str], query: str) -> list[float]:
    """How much each sentence says of what the page is about."""
    words = [set(terms(piece)) for piece in pieces]
    common = Counter(word for each in words for word in each)
    named = {word for head in heads for word in terms(head)}
    asked = set(terms(query))
    worth = {word: math.log1p(count) * (_NAMED if word in named else 1.0) for word, count in common.items()}
    told = [sum(worth[word] for word in each) / math.sqrt(len(each) + 1) for each in words]
    best = max(told) or 1.0
    return [
        len(each & asked) + value / best + _LEAD / (1 + at)
        for at, (each, value) in enumerate(zip(words, told, strict=True))
    ]
