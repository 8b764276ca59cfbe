"""The metrics of a worker, for Prometheus; no label holds a tenant, user or text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class WorkerMetrics:
    """Messages by how they ended, how long they took, and how often they were tried again, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "contexture_worker_seconds",
            "Messages from delivery to acknowledgement, by how they ended.",
            ("outcome",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._retries = Counter("contexture_worker_retries_total", "Tries after a first one.", registry=registry)

    def ended(self, outcome: str, seconds: float) -> None:
        """Count a message."""
        self._seconds.labels(outcome).observe(seconds)

    def retried(self) -> None:
        """Count a further try."""
        self._retries.inc()
