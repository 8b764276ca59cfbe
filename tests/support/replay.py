"""Capsules replayed with a given token counter."""

from __future__ import annotations

from contexture.builders.replay import CapsuleReplayer
from contexture.ports import TokenCounter
from contexture.wiring.plugins import load_builder


def replayer(counter: TokenCounter) -> CapsuleReplayer:
    """A replayer for the capsules of all builders, whatever model they name."""
    return CapsuleReplayer(recompose=lambda kind: load_builder(kind).recompose, counter_for=lambda _: counter)
