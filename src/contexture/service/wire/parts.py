"""Pieces that many answers have in common, as OpenAPI describes them; the answers themselves are made in `*_object`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contexture.ledger import Reason, State
from contexture.types import Form

Object = dict[str, Any]


class Answered(BaseModel):
    """An answer has these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class CitationShape(Answered):
    """Characters of a stored record."""

    collection: str
    record_id: str
    title: str
    start: int
    end: int
    hash: Annotated[str, Field(description="SHA-256 of the whole stored text.")]
    page: int | None


class EntryShape(Answered):
    """How one candidate ended, and why."""

    id: str
    section: str
    state: State
    reason: Reason
    tokens: int
    score: float
    signals: dict[str, float]
    form: Form | None
    of: Annotated[str | None, Field(description="The candidate that this one repeats.")]
    note: str


class DegradationShape(Answered):
    """A named loss of quality."""

    source: str
    reason: str


class Grounds(Answered):
    """Why a context looks as it does."""

    citations: list[CitationShape]
    ledger: list[EntryShape]
    degradations: list[DegradationShape]
    digest: Annotated[str | None, Field(description="SHA-256 of the messages.")]


class FaultShape(Answered):
    """What went wrong, for people and for programs."""

    code: str
    user_message: str
    tech_message: str
    retryable: bool


class MetaShape(Answered):
    """Which version answered, and under which id it can be found in the log."""

    version: str
    correlation_id: str


class ProblemShape(Answered):
    """An error, on every route."""

    error: FaultShape
    meta: MetaShape


class EventShape(Answered):
    """One message of a session."""

    id: str
    position: int
    time: datetime
    message: Object
    metadata: Object


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemShape, "description": "The caller can fix it."},
    "5XX": {"model": ProblemShape, "description": "It is ours to fix; `retryable` says whether another try may help."},
}
"""What every route may answer instead."""
