"""Capsules replayed with a given token counter."""

from __future__ import annotations

from dataclasses import replace

from contexture.builders.replay import CapsuleReplayer
from contexture.ports import TokenCounter
from contexture.wiring._builders import capsule_replayer


def replayer(counter: TokenCounter) -> CapsuleReplayer:
    """A replayer for the capsules of all builders, whatever model they name."""

    def counter_for(model: str, encoding: str | None) -> TokenCounter:
        del model, encoding
        return counter

    return replace(capsule_replayer(), counter_for=counter_for)
