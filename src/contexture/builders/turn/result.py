"""What a turn builder returns: `TurnContext`, its snippets and its debug object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contexture.builders.clean import Cleaner
from contexture.builders.turn.collect import clean_metadata
from contexture.builders.turn.compose import ComposedTurn
from contexture.builders.turn.request import RedactedTurn
from contexture.capsule import Capsule
from contexture.conversation import Recalled
from contexture.errors import RedactionFailed
from contexture.ledger import Degradation, Ledger
from contexture.pipeline.truncation import cite_variant
from contexture.types import Candidate, Citation, Form, Message, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """A memory as it is shown in the prompt; `score` is `.7 x base_score + .3 x recency`."""

    id: str
    text: str
    score: float
    base_score: float
    recency: float
    label: str
    form: Form
    tokens: int
    time: datetime | None
    metadata: Mapping[str, Any]
    citations: tuple[Citation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnContext:
    """The prompt of a turn, its parts, the ledger that explains it, and the capsule that rebuilds it.

    `system_prompt` is the text that is actually sent. `token_counts` has `system`, `history`, `snippets` and `user`,
    each with its framing; they add up to `tokens`.
    """

    build_id: str
    system_prompt: str
    messages: tuple[Message, ...]
    tokens: int
    token_counts: Mapping[str, int]
    debug: Mapping[str, Any]
    snippets: tuple[Snippet, ...]
    history: tuple[Message, ...]
    encoding: str
    exact: bool
    ledger: Ledger
    capsule: Capsule
    timings: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations of this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of all shown memories."""
        return tuple(citation for snippet in self.snippets for citation in snippet.citations)


def make_snippet(found: Recalled, candidate: Candidate, form: Variant, cleaner: Cleaner) -> Snippet:
    """A shown memory as a `Snippet`; metadata that cannot be redacted is left out."""
    try:
        metadata: Mapping[str, Any] = clean_metadata(cleaner, found.metadata)
    except RedactionFailed:
        metadata = {}
    return Snippet(
        id=found.id,
        text=form.text,
        score=candidate.score,
        base_score=candidate.signals["relevance"],
        recency=candidate.signals["recency"],
        label=candidate.label,
        form=form.form,
        tokens=form.tokens,
        time=candidate.time,
        metadata=metadata,
        citations=cite_variant(candidate, form),
    )


def make_debug(
    asked: RedactedTurn, composed: ComposedTurn, snippets: Sequence[Snippet], history: int
) -> dict[str, Any]:
    """The `debug` object of a turn: state, ids and counts."""
    return {
        "somabrain_state": asked.state.value,
        "snippet_ids": [snippet.id for snippet in snippets],
        **asked.names,
        "snippet_count": len(snippets),
        "snippet_tokens": composed.token_counts["snippets"],
        "history_count": history,
        "trimmed_count": asked.older + composed.start,
        "total_tokens": composed.tokens,
        "max_prompt_tokens": asked.limit,
    }
