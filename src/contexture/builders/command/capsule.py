"""A command in a box: what its documents and prompt were composed of, as JSON and back."""

from __future__ import annotations

from contexture.builders.command.compose import Plan
from contexture.capsule import Capsule, held

KIND = "command"


def plan_of(capsule: Capsule) -> Plan:
    """The plan that a capsule was built by."""
    return held(capsule.request.get("plan"), Plan, "a command")
