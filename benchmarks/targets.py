"""What each figure should be, and how a figure is read: its unit stands in its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.timing import Numbers

UNITS = {
    "ms": "ms",
    "us": "µs",
    "s": "s",
    "mb": "MB",
    "share": "share",
    "gap": "share",
    "ratio": "x",
    "tokens": "tokens",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A bound that a figure should keep, from above unless `at_least` says otherwise."""

    bound: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


SIZED = {
    "search_exact_p95_ms": Target(12),
    "search_exact_embedding_minilm_p95_ms": Target(25),
    "search_exact_embedding_shipped_p95_ms": Target(25),
    "added_found_share": Target(1, at_least=True),
    "build_p95_ms": Target(15),
    "build_embedding_minilm_p95_ms": Target(30),
    "build_embedding_shipped_p95_ms": Target(30),
    "build_store_down_p95_ms": Target(2),
    "build_within_budget_share": Target(1, at_least=True),
    "turn_p95_ms": Target(15),
    "turn_embedding_minilm_p95_ms": Target(30),
    "turn_embedding_shipped_p95_ms": Target(30),
    "turn_down_p95_ms": Target(2),
    "turn_within_budget_share": Target(1, at_least=True),
    "workspace_p95_ms": Target(15),
    "workspace_embedding_shipped_p95_ms": Target(30),
    "workspace_within_budget_share": Target(1, at_least=True),
    "workspace_while_writing_ratio": Target(2),
    "command_p95_ms": Target(40),
    "command_embedding_shipped_p95_ms": Target(40),
    "command_miss_p95_ms": Target(150),
    "command_miss_embedding_shipped_p95_ms": Target(150),
}
"""For stores of up to 100,000 records."""

LARGEST = 100_000

GENERAL: Mapping[str, Target] = {
    "growth_search_p95_ratio": Target(3),
    "cache_hits_writes_to_same_tenant_share": Target(0.8, at_least=True),
    "turn_shared_prefix_share": Target(0.7, at_least=True),
    "pack_200_worst_p95_ms": Target(5),
    "pack_200_worst_gap": Target(0.01),
    "dedupe_100_worst_p95_ms": Target(1),
    "tokens_10k_worst_us": Target(1_000),
    "research_p95_ms": Target(60),
    "research_tight_p95_ms": Target(60),
    "research_embedding_shipped_p95_ms": Target(60),
    "research_within_budget_share": Target(1, at_least=True),
    "research_tight_within_budget_share": Target(1, at_least=True),
    "research_metadata_p95_ms": Target(1),
    "research_dedupe_100_p95_ms": Target(1),
    "research_estimate_10k_p95_ms": Target(1),
    "documents_text_pages_per_s": Target(20, at_least=True),
    "visual_p95_ms": Target(20),
    "visual_embedding_shipped_p95_ms": Target(40),
    **{
        f"pause_{route}_ms": Target(50)
        for route in ("records", "memories", "remember_batch", "articles", "blocks", "pages")
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table; `size` is the number of records, 0 where there is no store."""

    size: int
    name: str
    value: float

    @property
    def unit(self) -> str:
        """What the value counts."""
        if "_per_" in self.name:
            return "/s"
        return next((UNITS[part] for part in reversed(self.name.split("_")) if part in UNITS), "")

    @property
    def target(self) -> Target | None:
        """The bound for this figure, if there is one at this size."""
        return GENERAL.get(self.name) if not 0 < self.size <= LARGEST else SIZED.get(self.name)

    @property
    def verdict(self) -> str:
        """Whether the bound is kept; empty without a bound."""
        return "" if self.target is None else "yes" if self.target.met(self.value) else "no"

    @property
    def written(self) -> str:
        """The value with three significant digits."""
        return f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"


def growth(sized: Mapping[int, Numbers]) -> Numbers:
    """How much slower the largest store answers than the smallest."""
    answers = {
        size: numbers["search_exact_p95_ms"] for size, numbers in sized.items() if "search_exact_p95_ms" in numbers
    }
    if len(answers) < 2:
        return {}
    small, large = min(answers), max(answers)
    return {"growth_search_p95_ratio": answers[large] / answers[small], "growth_records_ratio": large / small}
