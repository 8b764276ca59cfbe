"""What a workspace builder reports about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Metrics(Protocol):
    """Told of every build; never of a tenant, a user or a text."""

    def record(
        self, *, seconds: Mapping[str, float], tokens: int, budget: int, blocks: Mapping[str, int], lost: Sequence[str]
    ) -> None:
        """How long each phase took, what was spent of the budget, blocks by how they ended, which sources failed."""
        ...


class NoMetrics:
    """Reports nothing."""

    def record(
        self, *, seconds: Mapping[str, float], tokens: int, budget: int, blocks: Mapping[str, int], lost: Sequence[str]
    ) -> None:
        """Nothing is kept."""
