"""What models cost, as data, and a purse that is never overdrawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_MILLION = 1_000_000


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
"""List prices by the names under which commands are routed; a name that is not here costs as much as the dearest."""


def price_of(name: str, prices: Mapping[str, Price] = PRICES) -> Price:
    """The price of a model."""
    if name in prices:
        return prices[name]
    return Price(max(each.read for each in prices.values()), max(each.written for each in prices.values()))


@dataclass(slots=True)
class Purse:
    """The cents that one command may spend."""

    budget: float
    spent: float = 0.0
    calls: int = 0

    def affords(self, price: Price, prompt: int, wanted: int) -> int:
        """How many tokens of an answer can be paid for after the prompt, at most `wanted`."""
        left = (self.budget - self.spent) * _MILLION - prompt * price.read
        if left < 0:
            return 0
        return wanted if not price.written else min(wanted, int(left / price.written))

    def pay(self, price: Price, prompt: int, written: int) -> None:
        """Pay for a call; one that failed is paid for as if all of its prompt had been read."""
        self.calls += 1
        self.spent += (prompt * price.read + written * price.written) / _MILLION
