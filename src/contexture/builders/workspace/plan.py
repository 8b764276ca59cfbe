"""What composing a context takes beside its candidates: all of it redacted, so that a capsule can hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from contexture.builders.workspace.config import ContextConfig, Truncation
from contexture.builders.workspace.request import ContextRequest, RequestType
from contexture.builders.workspace.values import COLLECTED, SectionType
from contexture.errors import InvalidRequest
from contexture.pipeline.packers import Packer

EMPHASIS: Mapping[RequestType, Mapping[str, float]] = {
    RequestType.ASSIST: {SectionType.FOCUS: 2.0},
    RequestType.CHAT: {},
    RequestType.SEARCH: {SectionType.SEMANTIC: 2.0},
    RequestType.AUTOMATE: {SectionType.FOCUS: 2.0, SectionType.RELATIONS: 1.5},
}
"""Which sections borrow more than their relevance says, by what the answer is for."""


class Line(Struct, frozen=True, kw_only=True):
    """One message of the conversation, fit to be shown; `at` is its place in the request."""

    at: int
    role: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A request as far as composing needs it; `shorter` are summaries that a model wrote, by candidate."""

    query: str
    kind: RequestType
    system: str
    total: int
    floors: Mapping[str, int]
    caps: Mapping[str, int]
    history: tuple[Line, ...]
    timestamp: str
    collectors: tuple[str, ...]
    focus: Mapping[str, str | None]
    truncation: Truncation = field(default_factory=Truncation)
    packer: Packer = Packer.OPTIMAL
    near_duplicate: float = 0.9
    sharpness: float = 4.0
    shorter: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def sections(self) -> tuple[SectionType, ...]:
        """The sections of the template that are shown."""
        return tuple(section for section in COLLECTED if self.floors[section] > 0)


def floors_of(request: ContextRequest, config: ContextConfig) -> dict[str, int]:
    """What each section may count on; 0 leaves it out. Floors beyond the total are scaled down alike."""
    said, default = request.token_budget, config.token_budget
    total = total_of(request, config)
    floors = {
        SectionType.SYSTEM: _either(said.system, default.system),
        SectionType.HISTORY: _either(said.history, default.history),
        SectionType.FOCUS: _either(said.focus, default.focus),
        SectionType.SEMANTIC: _either(said.semantic, default.semantic),
        SectionType.RELATIONS: _either(said.relations, default.relations),
        SectionType.ACTIVITY: _either(said.activity, default.activity),
    }
    claimed = sum(floors.values())
    if claimed <= total:
        return {str(name): floor for name, floor in floors.items()}
    return {str(name): max(1, floor * total // claimed) if floor else 0 for name, floor in floors.items()}


def total_of(request: ContextRequest, config: ContextConfig) -> int:
    """The most tokens the context may have."""
    return _either(request.token_budget.total, config.token_budget.total)


def caps_of(request: ContextRequest) -> dict[str, int]:
    """The hard limits of sections; a section nobody knows is named."""
    caps = dict(request.token_budget.caps)
    known = [str(section) for section in (SectionType.HISTORY, *COLLECTED)]
    if unknown := sorted(set(caps) - set(known)):
        raise InvalidRequest(f"there is no section {unknown[0]!r} to cap; there are {', '.join(known)}")
    return caps


def _either(said: int | None, default: int) -> int:
    return default if said is None else said
