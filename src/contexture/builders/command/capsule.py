"""A command in a box: what its documents and prompt were composed of, as JSON and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec

from contexture.builders.command.compose import Composed, Plan
from contexture.capsule import Capsule, digest, sealed
from contexture.errors import InvalidRequest
from contexture.ledger import Ledger
from contexture.types import Candidate, Scope

KIND = "command"


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxed:
    """What goes into a capsule beside what was composed; `said` is how the command was understood, redacted."""

    scope: Scope
    now: datetime
    said: dict[str, Any]
    plan: Plan
    candidates: Sequence[Candidate]
    ledger: Ledger
    model: str


def sealed_command(boxed: Boxed, composed: Composed) -> Capsule:
    """The capsule of a build."""
    composable = {candidate.id for candidate in boxed.candidates}
    return sealed(
        Capsule(
            kind=KIND,
            tenant=boxed.scope.tenant,
            user=boxed.scope.user,
            groups=boxed.scope.groups,
            now=boxed.now,
            request={**boxed.said, "plan": asdict(boxed.plan)},
            settings={"model": boxed.model},
            candidates=tuple(boxed.candidates),
            lost=tuple(entry for entry in boxed.ledger.entries if entry.id not in composable),
            degradations=boxed.ledger.degradations,
            messages=composed.messages,
            digest=digest(composed.messages),
        )
    )


def plan_of(capsule: Capsule) -> Plan:
    """The plan that a capsule was built by."""
    try:
        return msgspec.convert(capsule.request.get("plan"), Plan)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule does not hold a command: {failure}") from failure
