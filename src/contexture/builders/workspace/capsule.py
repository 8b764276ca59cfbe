"""A workspace context in a box: what it was composed of, as JSON and back."""

from __future__ import annotations

from contexture.builders.workspace.plan import Plan
from contexture.capsule import Capsule, held

KIND = "workspace"


def plan_of(capsule: Capsule) -> Plan:
    """The plan that a capsule was built by."""
    return held(capsule.request, Plan, "a workspace context")
