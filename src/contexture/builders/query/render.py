"""The prompt of a plain query: instructions, numbered material, question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from contexture.pipeline.extract import ELLIPSIS
from contexture.pipeline.fence import DATA_NOTICE, label
from contexture.types import Candidate, Citation, Message, Variant

NOTHING_FOUND = "_No relevant content found._"

_TOUCHING = 2  # characters of white space between passages that follow each other


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One numbered block: a record, with the fenced passages of it that are shown, in their own order."""

    label: str
    texts: tuple[str, ...]
    citations: tuple[Citation, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def blocks(shown: Sequence[tuple[Candidate, Variant]]) -> list[Block]:
    """Passages grouped by record, records in the order of their best passage."""
    groups: dict[str, list[tuple[Candidate, Variant]]] = {}
    for candidate, variant in shown:
        groups.setdefault(candidate.record_id, []).append((candidate, variant))
    return [_block(sorted(group, key=_place)) for group in groups.values()]


def messages(system: str, query: str, found: Sequence[Block]) -> tuple[Message, ...]:
    """Stable part first, then the material, then the question."""
    return (
        {"role": "system", "content": f"{system}\n\n{DATA_NOTICE}" if system else DATA_NOTICE},
        {"role": "system", "name": "context", "content": material(found)},
        {"role": "user", "content": query},
    )


def material(found: Sequence[Block]) -> str:
    """The numbered blocks, or the sentence that says there are none."""
    parts = [f"[{number}] ({block.label})\n{_joined(block)}" for number, block in enumerate(found, start=1)]
    return "\n\n".join(parts) or NOTHING_FOUND


def text_of(prompt: Sequence[Message]) -> str:
    """The prompt as one text, for people."""
    return "\n\n".join(str(message["content"]) for message in prompt)


def heading(candidate: Candidate) -> str:
    """What stands in the parentheses of a candidate's block: only what redaction has seen as it is shown."""
    return label(candidate.label or candidate.title) or "untitled"


def _block(group: Sequence[tuple[Candidate, Variant]]) -> Block:
    return Block(
        label=heading(group[0][0]),
        texts=tuple(variant.text for _, variant in group),
        citations=tuple(found for candidate, variant in group for found in cited(candidate, variant)),
        starts=tuple(_place(shown)[0] for shown in group),
        ends=tuple(candidate.citation.end if candidate.citation else 0 for candidate, _ in group),
    )


def cited(candidate: Candidate, variant: Variant) -> tuple[Citation, ...]:
    """Where what is shown of a candidate stands in its record: all of it, or each run of sentences."""
    if candidate.citation is None:
        return ()
    if not variant.spans or not candidate.origins:
        return (candidate.citation,)
    begins = {sentence[0]: origin[0] for sentence, origin in zip(candidate.sentences, candidate.origins, strict=True)}
    ends = {sentence[1]: origin[1] for sentence, origin in zip(candidate.sentences, candidate.origins, strict=True)}
    return tuple(replace(candidate.citation, start=begins[start], end=ends[end]) for start, end in variant.spans)


def _joined(block: Block) -> str:
    """Passages that follow each other in the record stand on their own lines; a gap is marked."""
    text = block.texts[0]
    for end, start, piece in zip(block.ends, block.starts[1:], block.texts[1:], strict=False):
        text += ("\n" if start - end <= _TOUCHING else f"\n{ELLIPSIS.strip()}\n") + piece
    return text


def _place(shown: tuple[Candidate, Variant]) -> tuple[int, str]:
    citation = shown[0].citation
    return (citation.start if citation else 0, shown[0].id)
