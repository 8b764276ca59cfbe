"""Rendering of a turn prompt: messages, numbered memories, and the variants of each memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from contexture.builders.turn.request import Content
from contexture.pipeline.fence import DATA_NOTICE, MaterialRole, PromptFence, safe_label
from contexture.pipeline.packing import VariantsById
from contexture.pipeline.truncation import extract_sentences
from contexture.ports import TokenCounter
from contexture.text.segmentation import split_sentences
from contexture.types import Candidate, Form, Message, Variant

MEMORY_HEADING = "Relevant memory:"
SOURCES_HEADING = "Relevant memory and sources:"
SOURCE_MATERIAL = "source"
"""Signal of a candidate that is no memory: a passage of a record, a document, an article or the workspace."""

MEMORY_NAME = "memory"

ShownMemory = tuple[Candidate, Variant]


def render_system(prompt: str) -> str:
    """The system message as sent: the caller's prompt plus the data notice, the same in every turn."""
    return f"{prompt}\n\n{DATA_NOTICE}" if prompt else DATA_NOTICE


def render_messages(
    system: str,
    history: Sequence[Message],
    shown: Sequence[ShownMemory],
    user: Content,
    role: MaterialRole = MaterialRole.SYSTEM,
    continuation: Sequence[Message] = (),
) -> tuple[Message, ...]:
    """Messages from most to least stable: system, history, memories if any, user, and what follows it.

    With material of other sources among the memories, it is all in a message of the user role: others wrote it.
    """
    if any(map(is_material, shown)):
        role = MaterialRole.USER
    memory = [{"role": role.value, "name": MEMORY_NAME, "content": render_memories(shown)}] if shown else []
    return ({"role": "system", "content": system}, *history, *memory, {"role": "user", "content": user}, *continuation)


def render_memories(shown: Sequence[ShownMemory]) -> str:
    """The numbered memories under their heading."""
    numbered = enumerate(shown, start=1)
    heading = SOURCES_HEADING if any(map(is_material, shown)) else MEMORY_HEADING
    return "\n".join((heading, *(render_block(number, candidate, form.text) for number, (candidate, form) in numbered)))


def is_material(shown: ShownMemory) -> bool:
    """Whether a shown block is no memory."""
    return SOURCE_MATERIAL in shown[0].signals


def render_block(number: int, candidate: Candidate, text: str) -> str:
    """One numbered, labelled memory."""
    return f"[{number}] ({safe_label(candidate.label) or 'memory'})\n{text}"


_EXTRACT_SHARES = (0.6, 0.35, 0.2)
_EXTRACT_VALUE_EXPONENT = 0.3  # half the tokens, spent on the best sentences, keep four fifths of the value
_MIN_EXTRACT_TOKENS = 16  # a shorter extract is not useful
_MAX_SCORE = 1e6  # above any salience score, but a foreign capsule may contain more
_WIDEST_NUMBER = 99  # no prompt has more numbered blocks


def make_variants(
    candidates: Sequence[Candidate],
    *,
    query: str,
    counter: TokenCounter,
    fence: PromptFence,
    sharpness: float,
    room: int,
) -> VariantsById:
    """Variants per candidate id.

    Full text, plus extracts of the best sentences when not everything fits in `room`.
    """
    whole = {candidate.id: _full_variant(candidate, counter, fence, sharpness) for candidate in candidates}
    if sum(form.tokens for form in whole.values()) <= room:
        return {name: [form] for name, form in whole.items()}
    return {
        candidate.id: [whole[candidate.id], *_extract_variants(candidate, whole[candidate.id], query, counter, fence)]
        for candidate in candidates
    }


def _full_variant(candidate: Candidate, counter: TokenCounter, fence: PromptFence, sharpness: float) -> Variant:
    text = fence.block(candidate.text)
    value = min(max(candidate.score, 0.0), _MAX_SCORE) ** sharpness
    stored = candidate.tokens.get(counter.encoding) if text == candidate.text else None
    tokens = (
        counter.count(_render_numbered(candidate, text))
        if stored is None
        else stored + counter.count(_render_numbered(candidate, ""))
    )
    return Variant(form=Form.FULL, text=text, tokens=tokens, value=value)


def _extract_variants(
    candidate: Candidate, whole: Variant, query: str, counter: TokenCounter, fence: PromptFence
) -> list[Variant]:
    offsets = candidate.sentences or split_sentences(candidate.text)
    weights = candidate.weights if candidate.sentences else ()
    found: dict[str, Variant] = {}
    for share in _EXTRACT_SHARES:
        limit = math.floor(whole.tokens * share)
        if limit < _MIN_EXTRACT_TOKENS or len(offsets) < 2:  # noqa: PLR2004 - one sentence is the whole
            break
        cut = extract_sentences(candidate.text, offsets, query, counter, limit, weights=weights)
        text = fence.block(cut.text)
        tokens = counter.count(_render_numbered(candidate, text))
        if cut.text and tokens < whole.tokens and text not in found:
            # The best sentences have more than their proportional share of the value of the memory.
            value = whole.value * (tokens / whole.tokens) ** _EXTRACT_VALUE_EXPONENT
            found[text] = Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=cut.spans)
    return list(found.values())


def _render_numbered(candidate: Candidate, text: str) -> str:
    return f"{render_block(_WIDEST_NUMBER, candidate, text)}\n"
