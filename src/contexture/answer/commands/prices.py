"""What models cost, as data, and a purse that is never overdrawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, runtime_checkable

_MILLION = 1_000_000
_MARGIN = 1.5  # vendors count the same prompt differently, some of them half as much again


@dataclass(frozen=True, slots=True)
class Price:
    """Cents for a million tokens, read and written."""

    read: float
    written: float


PRICES: Mapping[str, Price] = MappingProxyType(
    {
        "gpt-5": Price(125, 1_000),
        "claude-4.5": Price(300, 1_500),
        "gemini-2.5-pro": Price(125, 1_000),
        "local": Price(0, 0),
        "extractive": Price(0, 0),
    }
)
"""List prices by the names under which commands are routed."""

FREE = Price(0, 0)
UNKNOWN = Price(15_000, 60_000)
"""What a model costs whose price nobody knows: as much as the dearest that vendors have listed."""


@runtime_checkable
class Priced(Protocol):
    """A model that knows its price."""

    @property
    def price(self) -> tuple[float, float] | None:
        """Cents for a million tokens, read and written; None when it is not known."""
        ...


def price_of(name: str, prices: Mapping[str, Price] = PRICES) -> Price:
    """The price of a model; nothing is cheap because nobody knows its price."""
    return prices.get(name, UNKNOWN)


def price_behind(adapter: str, model: object) -> Price:
    """The price of the model that really answers, whatever name commands are routed by; what runs here is free."""
    if adapter.partition(":")[0] in {"", "local", "extractive"}:
        return FREE
    listed = model.price if isinstance(model, Priced) else None
    return UNKNOWN if listed is None else Price(*listed)


@dataclass(slots=True)
class Purse:
    """The cents that one command may spend; what it says was spent is an upper bound.

    A prompt is paid for with a margin, because it is counted here and not by the vendor. An answer is paid for at its
    full length, because what a model thinks and does not say is billed as well.
    """

    budget: float
    spent: float = 0.0
    calls: int = 0

    def affords(self, price: Price, prompt: int, wanted: int) -> int:
        """How many tokens of an answer can be paid for after the prompt, at most `wanted`."""
        left = (self.budget - self.spent) * _MILLION - _counted(prompt) * price.read
        if left < 0:
            return 0
        return wanted if not price.written else min(wanted, int(left / price.written))

    def pay(self, price: Price, prompt: int, longest: int) -> None:
        """Pay for a call whose answer could be `longest` tokens, whether it came or not."""
        self.calls += 1
        self.spent += (_counted(prompt) * price.read + longest * price.written) / _MILLION


def _counted(prompt: int) -> int:
    return math.ceil(prompt * _MARGIN)
