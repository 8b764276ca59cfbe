"""What a turn builder returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contexture.builders.turn.clean import Cleaner
from contexture.builders.turn.compose import Composed
from contexture.builders.turn.render import cited
from contexture.builders.turn.request import Asked
from contexture.capsule import Capsule
from contexture.conversation import Recalled
from contexture.errors import RedactionFailed
from contexture.ledger import Degradation, Ledger
from contexture.types import Candidate, Citation, Form, Message, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """A memory as it stands in the prompt: `score` is `.7 x base_score + .3 x recency`."""

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
    """The prompt of a turn, what it is made of, why, and the capsule that rebuilds it.

    `system_prompt` is what is really sent. `token_counts` has `system`, `history`, `snippets` and `user`, each
    with its framing; they add up to `tokens`.
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
        """Every named loss of quality in this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Where everything shown from memory stands in the store."""
        return tuple(citation for snippet in self.snippets for citation in snippet.citations)


def snippet_of(found: Recalled, candidate: Candidate, form: Variant, cleaner: Cleaner) -> Snippet:
    """A memory as it is shown; metadata that cannot be redacted is not."""
    try:
        metadata: Mapping[str, Any] = cleaner.value(found.metadata)
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
        citations=cited(candidate, form),
    )


def debug_of(asked: Asked, composed: Composed, snippets: Sequence[Snippet], history: int) -> dict[str, Any]:
    """The numbers and names that people look for first."""
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
