"""Experiments: arms that change how a command searches, and who is in which."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from contexture.builders.command.request import AbTest
from contexture.errors import InvalidRequest
from contexture.types import Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """What is different for those in it; None changes nothing.

    `lexical` is the share of shared words in a passage's score, the rest is that of its meaning.
    """

    k_final: int | None = None
    rerank: bool | None = None
    lexical: float | None = None

    def __post_init__(self) -> None:
        if self.lexical is not None and not 0 <= self.lexical <= 1:
            raise InvalidRequest(f"`lexical` is a share from 0 to 1, not {self.lexical}")


Experiments = Mapping[str, Mapping[str, Arm]]


def assigned(asked: AbTest, experiments: Experiments, scope: Scope) -> tuple[AbTest, Arm]:
    """The experiment with its arm, and what the arm changes.

    An experiment that nobody configured is carried along and changes nothing. Without an arm, the user's is chosen by
    a hash of experiment, tenant and user: the same every time, and even over many users.
    """
    arms = experiments.get(asked.experiment or "", {})
    if not arms:
        return asked, Arm()
    if asked.arm is not None:
        if asked.arm not in arms:
            raise InvalidRequest(
                f"experiment {asked.experiment!r} has no arm {asked.arm!r}; there are {', '.join(sorted(arms))}"
            )
        return asked, arms[asked.arm]
    chosen = sorted(arms)[_number(asked.experiment or "", scope) % len(arms)]
    return AbTest(experiment=asked.experiment, arm=chosen), arms[chosen]


def _number(experiment: str, scope: Scope) -> int:
    name = f"{experiment}\0{scope.tenant}\0{scope.user}"
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8])
