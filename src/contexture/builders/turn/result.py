"""What a turn builder returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contexture.capsule import Capsule
from contexture.ledger import Degradation, Ledger
from contexture.types import Citation, Form, Message


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
