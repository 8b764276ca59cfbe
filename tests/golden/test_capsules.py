"""Capsules that an earlier version wrote are replayed by this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from contexture import replay
from contexture.capsule import pack_capsule
from contexture.wiring.plugins import PluginGroup, built_in_plugins

CAPSULES = Path(__file__).with_name("capsules")
KINDS = sorted(built_in_plugins(PluginGroup.BUILDERS))


def test_a_capsule_of_every_builder_is_kept() -> None:
    """One per kind."""
    assert {path.stem for path in CAPSULES.iterdir()} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_capsule_replays(kind: str) -> None:
    """Its prompt is rebuilt to the same bytes, and so is its file; the ledger has a verdict for every candidate."""
    data = (CAPSULES / f"{kind}.json").read_bytes()
    capsule, ledger = replay(data)

    assert kind == capsule.kind
    assert data == pack_capsule(capsule)
    assert {candidate.id for candidate in capsule.candidates} <= {entry.id for entry in ledger.entries}
