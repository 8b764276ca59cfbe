"""The ledger of a build: which candidates were kept, shortened or dropped, what was degraded, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from contexture.errors import BrokenPromise
from contexture.types import Candidate, Form


class State(StrEnum):
    """The one state in which a candidate ends."""

    KEPT = "kept"
    SHORTENED = "shortened"
    DROPPED = "dropped"


class Reason(StrEnum):
    """Why a candidate ended in its state."""

    FITS = "fits"
    MADE_TO_FIT = "made_to_fit"
    OVER_BUDGET = "over_budget"
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    BELOW_FLOOR = "below_floor"
    BEYOND_TOP_K = "beyond_top_k"
    SECTION_OFF = "section_off"
    EMPTY = "empty"
    REDACTION_FAILED = "redaction_failed"
    INCOMPLETE = "incomplete"
    SUPERSEDED = "superseded"


class LedgerEntry(Struct, frozen=True, kw_only=True, gc=False):
    """The verdict on one candidate: `tokens` is its cost in the prompt, or what it would have cost."""

    id: str
    section: str
    state: State
    reason: Reason
    tokens: int
    score: float
    signals: Mapping[str, float] = field(default_factory=dict[str, float])
    form: Form | None = None
    of: Annotated[str | None, Meta(description="The candidate that this one repeats, or that supersedes it.")] = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Degradation:
    """A loss of quality in a build: the source that failed or was limited, and the reason."""

    source: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """One entry per candidate, in the order of the verdicts, and all degradations."""

    entries: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...] = ()

    def find(self, candidate_id: str) -> LedgerEntry | None:
        """The entry of a candidate; None when the build had no such candidate."""
        return next((entry for entry in self.entries if entry.id == candidate_id), None)

    def count(self, state: State) -> int:
        """How many candidates have this final state."""
        return sum(entry.state is state for entry in self.entries)

    def with_degradation(self, lost: Degradation) -> Ledger:
        """A copy of this ledger with one more degradation."""
        return replace(self, degradations=(*self.degradations, lost))


class Trace:
    """Collects the ledger while a build runs; raises `BrokenPromise` for a second verdict on a candidate."""

    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}
        self._degradations: list[Degradation] = []
        self._notes: dict[str, str] = {}

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations recorded so far."""
        return tuple(self._degradations)

    def keep(self, candidate: Candidate, *, tokens: int, form: Form = Form.FULL, note: str = "") -> None:
        """Record that the candidate is in the prompt, in full or in a shorter form."""
        whole = form is Form.FULL
        self._add_entry(
            candidate,
            State.KEPT if whole else State.SHORTENED,
            Reason.FITS if whole else Reason.MADE_TO_FIT,
            tokens,
            form=form,
            note=note,
        )

    def add_note(self, candidate: Candidate, note: str) -> None:
        """Let the entry of this candidate say something, whatever its verdict will be."""
        self._notes[candidate.id] = note

    def drop(
        self, candidate: Candidate, reason: Reason, *, tokens: int = 0, of: str | None = None, note: str = ""
    ) -> None:
        """Record that the candidate is not in the prompt; `of` is the id of the candidate that it duplicates."""
        self._add_entry(candidate, State.DROPPED, reason, tokens, of=of, note=note)

    def add_degradation(self, source: str, reason: str | Exception) -> None:
        """Record a degradation once: a source that failed or was limited, and the reason."""
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        found = Degradation(source=source, reason=text)
        if found not in self._degradations:
            self._degradations.append(found)

    def finish(self, candidates: Iterable[Candidate]) -> Ledger:
        """The ledger; raises `BrokenPromise` when a candidate has no verdict, so that counts always add up."""
        missing = sorted({candidate.id for candidate in candidates} - self._entries.keys())
        if missing:
            raise BrokenPromise(f"no verdict was recorded for candidates {missing[:5]!r}")
        return Ledger(entries=tuple(self._entries.values()), degradations=tuple(self._degradations))

    def _add_entry(
        self,
        candidate: Candidate,
        state: State,
        reason: Reason,
        tokens: int,
        *,
        form: Form | None = None,
        of: str | None = None,
        note: str = "",
    ) -> None:
        if candidate.id in self._entries:
            raise BrokenPromise(f"candidate {candidate.id!r} was judged twice")
        self._entries[candidate.id] = LedgerEntry(
            id=candidate.id,
            section=candidate.section,
            state=state,
            reason=reason,
            tokens=tokens,
            score=candidate.score,
            signals=candidate.signals,
            form=form,
            of=of,
            note=note or self._notes.get(candidate.id, ""),
        )
