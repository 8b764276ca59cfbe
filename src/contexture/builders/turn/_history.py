"""Messages of a turn: cleaning, which of them stay together, where history is cut, and which memories repeat it."""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from contexture.builders.clean import Cleaner
from contexture.builders.turn.request import Content, HistoryLine, plain_text
from contexture.ledger import Reason, Trace
from contexture.pipeline.fence import MATERIAL_NAMES, PromptFence
from contexture.text.simhash import shingles
from contexture.text.skeleton import skeleton
from contexture.types import Candidate, Message

_MIN_BLOCK_MESSAGES = 64
_MIN_MESSAGE_TOKENS = 8
_INVALID_NAME_CHARS = re.compile(r"[^\w-]+")


def clean_content(cleaner: Cleaner, content: Content, fence: PromptFence) -> Content:
    """A content with its texts cleaned and as a message shows them; parts without text are unchanged."""
    if isinstance(content, str):
        return cleaner.clean_prompt_text(content, fence)
    return [
        {**part, "text": cleaner.clean_prompt_text(part["text"], fence)} if "text" in part else part for part in content
    ]


def clean_message(cleaner: Cleaner, message: Message, fence: PromptFence) -> Message:
    """A message with its content, its name and the arguments of its calls cleaned, without control tokens."""
    clean = dict(message)
    if message["content"] is not None:
        clean["content"] = clean_content(cleaner, message["content"], fence)
    if "name" in message:
        clean["name"] = _clean_name(cleaner, message["name"])
    if "tool_calls" in message:
        clean["tool_calls"] = [_clean_call(cleaner, call) for call in message["tool_calls"]]
    return fence.message(clean)


def _clean_name(cleaner: Cleaner, name: str) -> str:
    """A cleaned name, valid for chat APIs: the brackets of a placeholder become underscores.

    A name that a message with memories or sources has gets an underscore, so that no message passes for one.
    """
    clean = cleaner.clean_text(name)
    valid = name if clean == name else _INVALID_NAME_CHARS.sub("_", clean).strip("_")
    return f"{valid}_" if skeleton(valid) in MATERIAL_NAMES else valid


def _clean_call(cleaner: Cleaner, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": cleaner.clean_text(function["arguments"])}}


def count_unread(count: int, limit: int) -> int:
    """How many of the oldest messages are skipped unread because they can never fit.

    Grows in blocks so that prefixes stay stable.
    """
    block = max(_MIN_BLOCK_MESSAGES, limit // _MIN_MESSAGE_TOKENS)
    return max(0, (count // block - 1) * block)


def drop_incomplete_calls(messages: Iterable[tuple[int, Message]]) -> tuple[list[HistoryLine], list[int]]:
    """Lines that may be shown, and the indexes of messages that may not.

    Tool results without a call, and calls without all of their results, may not be shown.
    """
    given = list(messages)
    results, orphans = _match_tool_results(given)
    incomplete = {at for at, message in given if len(results.get(at, ())) < len(message.get("tool_calls", ()))}
    gone = orphans | incomplete | {result for at in incomplete for result in results.get(at, ())}
    ends = {at: max(found) for at, found in results.items() if at not in gone and found}
    lines: list[HistoryLine] = []
    busy = -1  # index of the last result of the calls seen so far
    for at, message in given:
        if at not in gone:
            lines.append(HistoryLine(at=at, message=message, opens=at > busy))
            busy = max(busy, ends.get(at, -1))
    return lines, sorted(gone)


def find_newest_exchange(lines: Sequence[HistoryLine]) -> int:
    """Index where the newest exchange begins: the last user message, or the last line that may open a history."""
    openers = [number for number, line in enumerate(lines) if line.opens]
    spoken = [number for number in openers if lines[number].message["role"] == "user"]
    return (spoken or openers or [len(lines)])[-1]


def find_history_cut(lines: Sequence[HistoryLine], costs: Sequence[int], room: int, step: int) -> int:
    """Index of the first line of the newest history that fits in `room` tokens.

    Tool calls stay with their results. What is trimmed is rounded up to a multiple of `step` tokens, so that the next
    turns are cut at the same place and keep the same prefix. Rounding up neither cuts into the newest exchange nor
    leaves less than half of the room in use. Deterministic: there is no state between turns.
    """
    gone = [0, *accumulate(costs)]
    excess = gone[-1] - room
    if excess <= 0:
        return 0
    openings = [number for number, line in enumerate(lines) if line.opens] + [len(lines)]

    def first(tokens: int) -> int:
        return next(number for number in openings if gone[number] >= tokens or number == len(lines))

    least = first(excess)
    stepped = min(first(math.ceil(excess / step) * step), find_newest_exchange(lines)) if step > 0 else least
    return stepped if stepped > least and 2 * (gone[-1] - gone[stepped]) >= room else least


def _match_tool_results(given: Sequence[tuple[int, Message]]) -> tuple[dict[int, list[int]], set[int]]:
    """Indexes of the results of each call, and of results without a call; a repeated call id means the latest call."""
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


def drop_already_in_history(
    candidates: Sequence[Candidate], lines: Sequence[HistoryLine], trace: Trace, *, share: float
) -> list[Candidate]:
    """Candidates of which less than `share` (in word trigrams) occurs in any one history line.

    The others are dropped as near duplicates.
    """
    said = [(line, shingles(plain_text(line.message.get("content") or ""))) for line in lines]
    kept: list[Candidate] = []
    for candidate in candidates:
        runs = shingles(candidate.text)
        of = next((line for line, known in reversed(said) if len(runs & known) >= max(share * len(runs), 1)), None)
        if of is None:
            kept.append(candidate)
        else:
            trace.drop(candidate, Reason.NEAR_DUPLICATE, of=f"history[{of.at}]")
    return kept
