"""Numbered blocks of stored records in a prompt: messages, blocks, and the variants of each candidate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from contexture.pipeline.fence import (
    DATA_NOTICE,
    MaterialRole,
    PromptFence,
    drop_repeated_title,
    safe_label,
)
from contexture.pipeline.truncation import ELLIPSIS, cite_variant, extract_sentences
from contexture.ports import TokenCounter
from contexture.types import Candidate, Citation, Form, Message, Variant

NOTHING_FOUND = "_No relevant content found._"

_MAX_ADJACENT_GAP = 2  # most white space characters between adjacent passages


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordBlock:
    """One numbered block of a prompt: the shown passages of one record, fenced, in document order."""

    record_id: str
    label: str
    texts: tuple[str, ...]
    citations: tuple[Citation, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def text(self) -> str:
        """The passages, one per line; a gap between them in the record is marked by an ellipsis."""
        text = self.texts[0]
        for end, start, piece in zip(self.ends, self.starts[1:], self.texts[1:], strict=False):
            text += ("\n" if start - end <= _MAX_ADJACENT_GAP else f"\n{ELLIPSIS.strip()}\n") + piece
        return text


def group_by_record(shown: Sequence[tuple[Candidate, Variant]]) -> list[RecordBlock]:
    """Passages grouped into one block per record, records in the order of their best passage."""
    groups: dict[tuple[str, str], list[tuple[Candidate, Variant]]] = {}
    for candidate, variant in shown:
        groups.setdefault((candidate.section, candidate.record_id), []).append((candidate, variant))
    return [_make_block(sorted(group, key=_position)) for group in groups.values()]


def render_messages(
    system: str, query: str, material: str, role: MaterialRole = MaterialRole.USER, history: Sequence[Message] = ()
) -> tuple[Message, ...]:
    """Messages from most to least stable, for prompt caches: system prompt, history, material, question."""
    return (
        {"role": "system", "content": f"{system}\n\n{DATA_NOTICE}" if system else DATA_NOTICE},
        *history,
        {"role": role.value, "name": "context", "content": material or NOTHING_FOUND},
        {"role": "user", "content": query},
    )


def render_blocks(found: Sequence[RecordBlock], first: int = 1) -> str:
    """The blocks as text, numbered from `first`; "" when there are none."""
    return "\n\n".join(f"[{number}] ({block.label})\n{block.text}" for number, block in enumerate(found, start=first))


def join_messages(prompt: Sequence[Message]) -> str:
    """All message contents as one text, for display."""
    return "\n\n".join(str(message["content"]) for message in prompt)


def block_heading(candidate: Candidate) -> str:
    """The label of a candidate's block, or `untitled`; uses only redacted fields."""
    return safe_label(candidate.label or candidate.title) or "untitled"


def _make_block(group: Sequence[tuple[Candidate, Variant]]) -> RecordBlock:
    return RecordBlock(
        record_id=group[0][0].record_id,
        label=block_heading(group[0][0]),
        texts=tuple(variant.text for _, variant in group),
        citations=tuple(found for candidate, variant in group for found in cite_variant(candidate, variant)),
        starts=tuple(_position(shown)[0] for shown in group),
        ends=tuple(candidate.citation.end if candidate.citation else 0 for candidate, _ in group),
    )


def _position(shown: tuple[Candidate, Variant]) -> tuple[int, str]:
    citation = shown[0].citation
    return (citation.start if citation else 0, shown[0].id)


_MAX_SCORE = 1e6  # above any search score, but a foreign capsule may contain more
_SEPARATOR_TOKENS = 2  # tokens of the separators around a passage
_MIN_SENTENCES = 2
_EXTRACT_SHARE = 0.6


def make_variants(
    candidates: Sequence[Candidate],
    *,
    query: str,
    counter: TokenCounter,
    fence: PromptFence,
    room: int,
    sharpness: float,
    extracts: int,
) -> dict[str, list[Variant]]:
    """Variants per candidate id: full text for all, plus an extract for those near the edge of the budget.

    Candidates ranked far inside the budget are shown in full and those far outside are dropped, so only the
    ones in between, `extracts` at most, are worth shortening. The value of a passage is `score ** sharpness` a token.
    """
    forms: dict[str, list[Variant]] = {}
    seen: set[str] = set()
    spent, edge = 0, extracts
    for candidate in candidates:
        whole = _full_variant(candidate, counter, sharpness, fence, first=candidate.record_id not in seen)
        seen.add(candidate.record_id)
        forms[candidate.id] = [whole]
        spent += whole.tokens
        if spent > room * 0.8 and edge > 0 and len(candidate.sentences) >= _MIN_SENTENCES:
            edge -= 1
            forms[candidate.id].extend(_extract_variants(candidate, whole, query, counter, fence))
    return forms


def show_text(text: str, candidate: Candidate, fence: PromptFence) -> str:
    """A text of a candidate as its block shows it, without a first line that repeats the block's heading."""
    titles = (block_heading(candidate), candidate.title)
    return fence.block(text if fence.is_legacy else drop_repeated_title(text, *filter(None, titles)))


def _full_variant(
    candidate: Candidate, counter: TokenCounter, sharpness: float, fence: PromptFence, *, first: bool
) -> Variant:
    text = show_text(candidate.text, candidate, fence)
    stored = candidate.tokens.get(counter.encoding) if text == candidate.text else None
    tokens = (counter.count(text) if stored is None else stored) + _SEPARATOR_TOKENS
    if first:
        tokens += counter.count(f"[00] ({block_heading(candidate)})\n")
    value = min(max(candidate.score, 0.0), _MAX_SCORE) ** sharpness * tokens
    return Variant(form=Form.FULL, text=text, tokens=tokens, value=value)


def _extract_variants(
    candidate: Candidate, whole: Variant, query: str, counter: TokenCounter, fence: PromptFence
) -> list[Variant]:
    limit = math.floor(whole.tokens * _EXTRACT_SHARE)
    found = extract_sentences(candidate.text, candidate.sentences, query, counter, limit)
    if not found.text or found.text == candidate.text:
        return []
    text = show_text(found.text, candidate, fence)
    shown = candidate.tokens.get(counter.encoding) if whole.text == candidate.text else None
    tokens = whole.tokens - (counter.count(whole.text) if shown is None else shown) + counter.count(text)
    if tokens >= whole.tokens:
        return []
    # The best sentences have more than their proportional share of the value of the passage.
    value = whole.value * math.sqrt(tokens / whole.tokens)
    return [Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=found.spans)]
