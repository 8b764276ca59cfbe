"""What a turn builder returns: `TurnContext`, its snippets and its debug object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from contexture.builders.clean import Cleaner
from contexture.builders.turn.compose import ComposedTurn
from contexture.builders.turn.request import RedactedTurn
from contexture.capsule import Capsule
from contexture.conversation import MEMORIES_COLLECTION, HealthState, Recalled, record_reference
from contexture.errors import RedactionFailed
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.pipeline.truncation import cite_variant
from contexture.results import Digest, FreeJson, JsonResult
from contexture.types import Candidate, ChatMessage, Citation, Form, Message, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """A memory as it is shown in the prompt, or material of another source: then `id` is its record.

    `score` is `.7 x base_score + .3 x recency`.
    """

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

    @property
    def collection(self) -> str:
        """Where it is stored."""
        return self.citations[0].collection if self.citations else MEMORIES_COLLECTION

    @property
    def reference(self) -> str:
        """The id of a memory; of anything else, its collection and id."""
        return self.id if self.collection == MEMORIES_COLLECTION else record_reference(self.collection, self.id)

    def json_form(self) -> SnippetJson:
        """The memory as it is sent; its citations are sent with those of the turn."""
        sent: SnippetJson = {
            "id": self.id,
            "text": self.text,
            "score": self.score,
            "base_score": self.base_score,
            "recency": self.recency,
            "label": self.label,
            "form": self.form,
            "tokens": self.tokens,
            "metadata": self.metadata,
        }
        return sent if self.collection == MEMORIES_COLLECTION else {**sent, "collection": self.collection}


class SnippetJson(TypedDict):
    """A memory in a prompt."""

    id: str
    text: str
    score: float
    base_score: float
    recency: float
    label: str
    form: Form
    tokens: int
    metadata: FreeJson
    collection: NotRequired[str]


class TurnDebug(TypedDict):
    """State, ids and counts of a turn."""

    somabrain_state: HealthState
    snippet_ids: list[str]
    tenant_id: str
    user_id: str
    session_id: str
    persona_id: str
    snippet_count: int
    snippet_tokens: int
    history_count: int
    trimmed_count: int
    total_tokens: int
    max_prompt_tokens: int


class TurnContextJson(TypedDict):
    """The prompt of a turn."""

    build_id: str
    system_prompt: str
    messages: tuple[ChatMessage, ...]
    tokens: int
    token_counts: Mapping[str, int]
    max_prompt_tokens: int
    encoding: str
    exact: bool
    snippets: list[SnippetJson]
    history: tuple[ChatMessage, ...]
    debug: TurnDebug
    citations: tuple[Citation, ...]
    ledger: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...]
    digest: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnContext(JsonResult):
    """The prompt of a turn, its parts, the ledger that explains it, and the capsule that rebuilds it.

    `system_prompt` is the text that is actually sent. `token_counts` has `system`, `history`, `snippets` and `user`,
    each with its framing; they add up to `tokens`.
    """

    build_id: str
    system_prompt: str
    messages: tuple[Message, ...]
    tokens: int
    token_counts: Mapping[str, int]
    debug: TurnDebug
    snippets: tuple[Snippet, ...]
    history: tuple[Message, ...]
    encoding: str
    exact: bool
    ledger: Ledger
    capsule: Capsule
    timings: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)
    restore: Callable[[str], str] = field(default=str, compare=False, repr=False)
    """Puts the values behind this prompt's placeholders back into a text for its reader; never sent or stored."""

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations of this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of all shown memories."""
        return tuple(citation for snippet in self.snippets for citation in snippet.citations)

    def json_form(self) -> TurnContextJson:
        """The turn with its ledger, without timings, so that equal builds give equal bytes."""
        return {
            "build_id": self.build_id,
            "system_prompt": self.system_prompt,
            "messages": cast("tuple[ChatMessage, ...]", self.messages),
            "tokens": self.tokens,
            "token_counts": self.token_counts,
            "max_prompt_tokens": self.debug["max_prompt_tokens"],
            "encoding": self.encoding,
            "exact": self.exact,
            "snippets": [snippet.json_form() for snippet in self.snippets],
            "history": cast("tuple[ChatMessage, ...]", self.history),
            "debug": self.debug,
            "citations": self.citations,
            "ledger": self.ledger.entries,
            "degradations": self.degradations,
            "digest": self.capsule.digest,
        }


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


def make_debug(asked: RedactedTurn, composed: ComposedTurn, snippets: Sequence[Snippet], history: int) -> TurnDebug:
    """The `debug` object of a turn: state, ids and counts."""
    return {
        "somabrain_state": asked.state,
        "snippet_ids": [snippet.id for snippet in snippets],
        "tenant_id": asked.names["tenant_id"],
        "user_id": asked.names["user_id"],
        "session_id": asked.names["session_id"],
        "persona_id": asked.names["persona_id"],
        "snippet_count": len(snippets),
        "snippet_tokens": composed.token_counts["snippets"],
        "history_count": history,
        "trimmed_count": asked.older + composed.start,
        "total_tokens": composed.tokens,
        "max_prompt_tokens": asked.limit,
    }


_MAX_DEPTH = 64


def clean_metadata(cleaner: Cleaner, value: object, levels: int = _MAX_DEPTH) -> Any:
    """Metadata with every text and key cleaned; raises `RedactionFailed` when nested deeper than `levels`."""
    if isinstance(value, str):
        return cleaner.clean_text(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not levels:
        raise RedactionFailed("metadata is nested too deeply")
    if isinstance(value, Mapping):
        inside = cast("Mapping[str, object]", value).items()
        return {cleaner.clean_text(name): clean_metadata(cleaner, held, levels - 1) for name, held in inside}
    return [clean_metadata(cleaner, held, levels - 1) for held in cast("Sequence[object]", value)]
