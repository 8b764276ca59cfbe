"""What a workspace builder returns.

`ContextPayload` with sections of items, metadata, the serialized text and the validation result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct
from typing_extensions import TypedDict

from contexture.capsule import Capsule
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.results import Digest, JsonResult
from contexture.types import Citation, Form, Message


class SectionType(StrEnum):
    """The sections of a context, in the order they are shown."""

    SYSTEM = "system"
    HISTORY = "history"
    FOCUS = "focus"
    SEMANTIC = "semantic"
    RELATIONS = "relations"
    ACTIVITY = "activity"


COLLECTED_SECTIONS = (SectionType.FOCUS, SectionType.SEMANTIC, SectionType.RELATIONS, SectionType.ACTIVITY)
"""The sections that collectors fill; a block found for several sections is shown in the first of them."""


COLLECTED_SIGNAL = "collected"
"""Name of the signal that holds the relevance given by a collector; shown in the ledger."""


class ItemMetadata(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Page title, path, time of the last change and form of an item."""

    page_title: str | None = None
    path: tuple[str, ...] = ()
    last_modified: str | None = None
    form: Form = Form.FULL


class ContextItem(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One block as it is shown; `relevance` is from 0 to 1, `block_type` is `message` for history."""

    block_id: str
    block_type: str
    content: str
    relevance: float
    metadata: ItemMetadata = ItemMetadata()


class ContextSection(Struct, frozen=True, kw_only=True, rename="camel"):
    """One section with its items, the most relevant first, and their tokens as the ledger counts them."""

    type: SectionType
    title: str
    items: tuple[ContextItem, ...]
    token_count: int


class ContextMetadata(Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata of a context; its counts include only blocks that the user may read."""

    total_tokens: int
    timestamp: str
    collectors_used: tuple[str, ...]
    blocks_included: int
    blocks_considered: int
    focus_block_id: str | None = None
    focus_page_id: str | None = None
    focus_database_id: str | None = None


class Issue(Struct, frozen=True, kw_only=True, rename="camel"):
    """A validation error or warning about a context, with the section and item it concerns."""

    code: str
    message: str
    section: str | None = None
    item: str | None = None


class ContextValidationResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Result of validating a context: errors are broken guarantees, warnings are losses of quality."""

    valid: bool
    errors: tuple[Issue, ...] = ()
    warnings: tuple[Issue, ...] = ()


class ContextPayloadJson(TypedDict):
    """The context of a request over the workspace."""

    buildId: str
    sections: tuple[ContextSection, ...]
    metadata: ContextMetadata
    serialized: str
    validation: ContextValidationResult
    encoding: str
    exact: bool
    citations: tuple[Citation, ...]
    ledger: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...]
    digest: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextPayload(JsonResult):
    """A finished context: its sections, text, citations, ledger and capsule.

    `caps` are the hard token limits of sections, `budget` is the total token budget; `validator` holds a payload
    against its guarantees, with the token counter of its build.
    """

    sections: tuple[ContextSection, ...]
    metadata: ContextMetadata
    serialized: str
    budget: int
    caps: Mapping[str, int]
    build_id: str
    citations: tuple[Citation, ...]
    ledger: Ledger
    capsule: Capsule
    encoding: str
    exact: bool
    validator: Callable[[ContextPayload], ContextValidationResult] = field(repr=False, compare=False)
    timings: dict[str, float] = field(default_factory=dict[str, float], compare=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The context as messages of a chat API."""
        return to_messages(self.serialized)

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations of this build."""
        return self.ledger.degradations

    def section(self, name: str) -> ContextSection | None:
        """The section of this type, or None when it was left out."""
        return next((each for each in self.sections if each.type == name), None)

    def json_form(self) -> ContextPayloadJson:
        """The context with its ledger, without timings, so that equal builds give equal bytes."""
        return {
            "buildId": self.build_id,
            "sections": self.sections,
            "metadata": self.metadata,
            "serialized": self.serialized,
            "validation": self.validator(self),
            "encoding": self.encoding,
            "exact": self.exact,
            "citations": self.citations,
            "ledger": self.ledger.entries,
            "degradations": self.degradations,
            "digest": self.capsule.digest,
        }


def to_messages(serialized: str) -> tuple[Message, ...]:
    """A serialized context as one user message; tokens are counted on exactly these messages."""
    return ({"role": "user", "content": serialized},)
