"""Sources cut to a budget in the order given, for callers who have sources and no question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contexture.builders.research.render import block, joined
from contexture.builders.research.values import SourceDocument
from contexture.builders.research.variants import MARK, pieces_of
from contexture.errors import InvalidRequest
from contexture.pipeline.truncate import keep_start
from contexture.ports import TokenCounter

_MARKS = 2  # tokens of the ellipsis at the end


def trimmed(
    sources: Sequence[SourceDocument], max_tokens: int, *, counter: TokenCounter, shortest: int
) -> list[SourceDocument]:
    """Sources from the first on that fit in `max_tokens` together; the last of them may be shortened."""
    if max_tokens < 0:
        raise InvalidRequest(f"max_tokens must not be below 0, not {max_tokens}")
    kept: list[SourceDocument] = []
    for source in sources:
        if _tokens([*kept, source], counter) > max_tokens:
            return [*kept, *_shortened(kept, source, max_tokens, counter, shortest)]
        kept.append(source)
    return kept


def _tokens(sources: Sequence[SourceDocument], counter: TokenCounter) -> int:
    return counter.count(
        joined(
            [
                block(number, source.filename, source.page, source.markdown_content)
                for number, source in enumerate(sources, start=1)
            ]
        )
    )


def _shortened(
    kept: Sequence[SourceDocument], source: SourceDocument, limit: int, counter: TokenCounter, shortest: int
) -> list[SourceDocument]:
    """The beginning of a source, as whole sentences where one fits; nothing where too little would be said."""
    room = limit - _tokens([*kept, replace(source, markdown_content="")], counter) - _MARKS
    while room >= shortest:
        cut = replace(source, markdown_content=_beginning(source.markdown_content, room, counter))
        over = _tokens([*kept, cut], counter) - limit
        if over <= 0:
            return [cut]
        room -= over
    return []


def _beginning(text: str, room: int, counter: TokenCounter) -> str:
    end = keep_start(text, counter, room)
    whole = max((stop for _, stop in pieces_of(text) if stop <= end), default=0)
    return f"{text[: whole or end].rstrip()} {MARK}"
