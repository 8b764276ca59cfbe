"""The metrics of workspace builds and of remembered searches, for Prometheus; no label holds a tenant, user or text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from contexture.adapters.metrics.prometheus import SHARES, TOTAL


class WorkspaceMetrics:
    """Histograms of the phases and of the share of the budget, and counters, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "contexture_workspace_seconds", "Phases of workspace builds.", ("phase",), buckets=TOTAL, registry=registry
        )
        self._share = Histogram(
            "contexture_workspace_token_utilization",
            "Share of its budget a workspace context spends.",
            buckets=SHARES,
            registry=registry,
        )
        self._blocks = Counter(
            "contexture_workspace_blocks_total", "Candidates, by how they ended.", ("state",), registry=registry
        )
        self._lost = Counter(
            "contexture_workspace_degradation_total", "Losses of quality, by source.", ("source",), registry=registry
        )

    def record(
        self, *, seconds: Mapping[str, float], tokens: int, budget: int, blocks: Mapping[str, int], lost: Sequence[str]
    ) -> None:
        """Count one build."""
        for phase, took in seconds.items():
            self._seconds.labels(phase).observe(took)
        self._share.observe(tokens / budget)
        for state, count in blocks.items():
            self._blocks.labels(state).inc(count)
        for source in lost:
            self._lost.labels(source).inc()


class CacheMetrics(Collector):
    """Searches answered from memory and computed, as `read` counts them whenever somebody looks."""

    def __init__(self, registry: CollectorRegistry, read: Callable[[], tuple[int, int]]) -> None:
        self._read = read
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The two counts."""
        found = CounterMetricFamily(
            "contexture_search_cache", "Searches, by whether memory could answer.", labels=["result"]
        )
        for result, count in zip(("hit", "miss"), self._read(), strict=True):
            found.add_metric([result], count)
        yield found
