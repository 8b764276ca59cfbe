"""Which messages of a history stay together, and where a history that is too long is cut."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

from contexture.builders.turn.request import Line
from contexture.types import Message

_LEAST_BLOCK = 64
_MESSAGE_TOKENS = 8


def first_read(count: int, limit: int) -> int:
    """How many of the oldest messages are not even read, because so many never fit.

    The number grows in blocks, so that what is read begins at the same message for many turns.
    """
    block = max(_LEAST_BLOCK, limit // _MESSAGE_TOKENS)
    return max(0, (count // block - 1) * block)


def lines_of(messages: Iterable[tuple[int, Message]]) -> tuple[list[Line], list[int]]:
    """The messages that may be shown, and the places of those that may not.

    A tool result without its call may not, nor a call without all of its results.
    """
    given = list(messages)
    results, orphans = _results(given)
    incomplete = {at for at, message in given if len(results.get(at, ())) < len(message.get("tool_calls", ()))}
    gone = orphans | incomplete | {result for at in incomplete for result in results.get(at, ())}
    ends = {at: max(found) for at, found in results.items() if at not in gone and found}
    lines: list[Line] = []
    busy = -1  # the last result of a call that has been seen
    for at, message in given:
        if at not in gone:
            lines.append(Line(at=at, message=message, opens=at > busy))
            busy = max(busy, ends.get(at, -1))
    return lines, sorted(gone)


def newest_exchange(lines: Sequence[Line]) -> int:
    """Where the newest exchange begins: at the last user message, or at the last message that may open a history."""
    openers = [number for number, line in enumerate(lines) if line.opens]
    spoken = [number for number in openers if lines[number].message["role"] == "user"]
    return (spoken or openers or [len(lines)])[-1]


def cut(lines: Sequence[Line], costs: Sequence[int], room: int, step: int) -> int:
    """Where the newest lines begin that fit in `room` tokens; calls are never parted from their results.

    When something must go, whole steps of `step` tokens go, counted from the oldest line, so that the next
    turns are cut at the same place until another step is needed; but a step neither takes of the newest exchange
    nor leaves less than half of the room in use. Equal input gives an equal cut: nothing is remembered between turns.
    """
    gone = [0, *accumulate(costs)]
    excess = gone[-1] - room
    if excess <= 0:
        return 0
    openings = [number for number, line in enumerate(lines) if line.opens] + [len(lines)]

    def first(tokens: int) -> int:
        return next(number for number in openings if gone[number] >= tokens or number == len(lines))

    least = first(excess)
    stepped = min(first(math.ceil(excess / step) * step), newest_exchange(lines)) if step > 0 else least
    return stepped if stepped > least and 2 * (gone[-1] - gone[stepped]) >= room else least


def _results(given: Sequence[tuple[int, Message]]) -> tuple[dict[int, list[int]], set[int]]:
    """The results of each call by place, and results that belong to none; a repeated id means the latest call."""
    open_calls: dict[str, int] = {}
    results: dict[int, list[int]] = {}
    orphans: set[int] = set()
    for at, message in given:
        for call in message.get("tool_calls", ()):
            open_calls[call["id"]] = at
        if message["role"] == "tool":
            owner = open_calls.pop(message["tool_call_id"], None)
            if owner is None:
                orphans.add(at)
            else:
                results.setdefault(owner, []).append(at)
    return results, orphans
