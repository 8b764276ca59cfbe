"""The prompt of a turn: instructions, history, numbered memories, what the user says."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from contexture.builders.turn.messages import Content
from contexture.pipeline.fence import DATA_NOTICE, label
from contexture.types import Candidate, Citation, Message, Variant

HEADING = "Relevant memory:"

Shown = tuple[Candidate, Variant]


def system_of(prompt: str) -> str:
    """The system part that is really sent; its last sentence is there in every turn, so that the prefix is stable."""
    return f"{prompt}\n\n{DATA_NOTICE}" if prompt else DATA_NOTICE


def messages(system: str, history: Sequence[Message], shown: Sequence[Shown], user: Content) -> tuple[Message, ...]:
    """What changes least comes first: system, history, memories if there are any, user."""
    memory = [{"role": "system", "name": "memory", "content": memory_text(shown)}] if shown else []
    return ({"role": "system", "content": system}, *history, *memory, {"role": "user", "content": user})


def memory_text(shown: Sequence[Shown]) -> str:
    """The numbered memories under their heading."""
    numbered = enumerate(shown, start=1)
    return "\n".join((HEADING, *(block(number, candidate, form.text) for number, (candidate, form) in numbered)))


def block(number: int, candidate: Candidate, text: str) -> str:
    """One labelled memory; the label is made safe after redaction has seen it."""
    return f"[{number}] ({label(candidate.label) or 'memory'})\n{text}"


def cited(candidate: Candidate, form: Variant) -> tuple[Citation, ...]:
    """Where what is shown of a memory stands in it: all of it, or each run of sentences."""
    if candidate.citation is None:
        return ()
    if not form.spans or not candidate.origins:
        return (candidate.citation,)
    pairs = list(zip(candidate.sentences, candidate.origins, strict=True))
    begins = {sentence[0]: origin[0] for sentence, origin in pairs}
    ends = {sentence[1]: origin[1] for sentence, origin in pairs}
    return tuple(replace(candidate.citation, start=begins[start], end=ends[end]) for start, end in form.spans)
