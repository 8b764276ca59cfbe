"""The conversation in a context: always the newest messages, without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from contexture.builders.workspace.plan import Line
from contexture.builders.workspace.render import shown
from contexture.builders.workspace.values import ContextItem, ItemMetadata, SectionType
from contexture.pipeline.fence import fence
from contexture.ports import TokenCounter
from contexture.types import Candidate

MESSAGE = "message"
_SEAM = 1


def message_item(line: Line) -> ContextItem:
    """A message as it is shown."""
    return ContextItem(
        block_id=f"history[{line.at}]",
        block_type=MESSAGE,
        content=fence(line.text),
        relevance=1.0,
        metadata=ItemMetadata(page_title=line.role),
    )


def line_candidate(line: Line) -> Candidate:
    """A message as the ledger knows it."""
    name = f"history[{line.at}]"
    return Candidate(id=name, key=name, text="", section=SectionType.HISTORY, kind=line.role, redacted=True)


def costs_of(lines: Sequence[Line], counter: TokenCounter) -> list[int]:
    """What each message costs with its header."""
    return [counter.count(shown(message_item(line))) + _SEAM for line in lines]


def newest(costs: Sequence[int], room: int) -> int:
    """Where the longest run of newest messages begins that fits in `room` tokens."""
    behind = list(accumulate(reversed(costs)))
    return len(costs) - sum(spent <= room for spent in behind)
