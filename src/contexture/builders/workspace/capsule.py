"""A workspace context in a box: what it was composed of, as JSON and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import msgspec

from contexture.builders.workspace.compose import Composed
from contexture.builders.workspace.plan import Plan
from contexture.builders.workspace.values import messages_of
from contexture.capsule import Capsule, digest, sealed
from contexture.errors import InvalidRequest
from contexture.ledger import Ledger
from contexture.types import Candidate, Scope

KIND = "workspace"


def sealed_workspace(
    plan: Plan,
    composed: Composed,
    *,
    scope: Scope,
    now: datetime,
    candidates: Sequence[Candidate],
    ledger: Ledger,
    model: str,
) -> Capsule:
    """The capsule of a build."""
    composable = {candidate.id for candidate in candidates} | {f"history[{line.at}]" for line in plan.history}
    messages = messages_of(composed.serialized)
    return sealed(
        Capsule(
            kind=KIND,
            tenant=scope.tenant,
            user=scope.user,
            groups=scope.groups,
            now=now,
            request=msgspec.to_builtins(asdict(plan)),
            settings={"model": model},
            candidates=tuple(candidates),
            lost=tuple(entry for entry in ledger.entries if entry.id not in composable),
            degradations=ledger.degradations,
            messages=messages,
            digest=digest(messages),
        )
    )


def plan_of(capsule: Capsule) -> Plan:
    """The plan that a capsule was built by."""
    try:
        return msgspec.convert(capsule.request, Plan)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule does not hold a workspace context: {failure}") from failure
