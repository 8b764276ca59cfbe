"""The packers by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from contexture.pipeline.greedy import pack_greedy
from contexture.pipeline.optimal import pack_optimal
from contexture.pipeline.pack import Pack


class Packer(StrEnum):
    """How candidates are chosen for the budget."""

    OPTIMAL = "optimal"
    GREEDY = "greedy"


PACKERS: Mapping[Packer, Pack] = MappingProxyType({Packer.OPTIMAL: pack_optimal, Packer.GREEDY: pack_greedy})
