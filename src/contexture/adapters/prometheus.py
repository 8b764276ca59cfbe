"""Prometheus metrics of turn builds, workspace builds, cached searches and workers.

Labels never contain a tenant, a user or text.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from contexture.conversation import HealthState

PHASE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
RETRIEVAL_BUCKETS = (*PHASE_BUCKETS, 2.0)
TOTAL_BUCKETS = (*RETRIEVAL_BUCKETS, 5.0)
MEMORY_BUCKETS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
COUNT_BUCKETS = (0, 1, 3, 5, 8, 10, 15, 20)
SHARE_BUCKETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


class TurnMetrics:
    """Metrics of turn builds: phase histograms, gauges of the last prompt's size, and counters."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def phase(name: str, text: str) -> Histogram:
            return Histogram(f"thinking_{name}_seconds", text, buckets=PHASE_BUCKETS, registry=registry)

        def size(name: str, text: str) -> Gauge:
            return Gauge(name, text, registry=registry)

        self._total = Histogram(
            "thinking_total_seconds", "Duration of builds.", buckets=TOTAL_BUCKETS, registry=registry
        )
        self._retrieval = Histogram(
            "thinking_retrieval_seconds",
            "Duration of memory recall, by health of the memory service.",
            ("state",),
            buckets=RETRIEVAL_BUCKETS,
            registry=registry,
        )
        self._salience = phase("salience", "Duration of scoring memories.")
        self._ranking = phase("ranking", "Duration of ranking and clipping memories.")
        self._redaction = phase("redaction", "Duration of redaction.")
        self._tokenisation = phase("tokenisation", "Duration of counting tokens and fitting the limit.")
        self._prompt = phase("prompt", "Duration of assembling messages.")
        self._before = size("context_tokens_before_budget", "Tokens of the last prompt before redaction and its limit.")
        self._after = size("context_tokens_after_budget", "Tokens of the last prompt after its limit was applied.")
        self._redacted = size("context_tokens_after_redaction", "Tokens of the last prompt's content after redaction.")
        self._tokens = size("context_prompt_tokens", "Tokens of the last prompt.")
        self._prompts = Counter("context_builder_prompt_total", "Prompts built.", registry=registry)
        self._snippets = Counter(
            "context_builder_snippets_total", "Memories that passed each stage.", ("stage",), registry=registry
        )
        self._asking = Histogram(
            "context_builder_retrieval_seconds", "Duration of memory recall.", buckets=MEMORY_BUCKETS, registry=registry
        )
        self._count = Histogram(
            "context_builder_snippet_count", "Memories in a prompt.", buckets=COUNT_BUCKETS, registry=registry
        )
        self._share = Histogram(
            "context_builder_token_utilization",
            "Share of the token limit that a prompt uses.",
            buckets=SHARE_BUCKETS,
            registry=registry,
        )
        self._degraded = Counter(
            "context_builder_degradation_total",
            "Degradations, by reason.",
            ("reason",),
            registry=registry,
        )

    def time_total(self) -> AbstractContextManager[None]:
        """Time a whole build."""
        return _observe_seconds(self._total)

    def time_retrieval(self, state: str) -> AbstractContextManager[None]:
        """Time memory retrieval, labelled with the state of the memory service."""
        return _observe_seconds(self._retrieval.labels(state), self._asking)

    def time_salience(self) -> AbstractContextManager[None]:
        """Time salience scoring."""
        return _observe_seconds(self._salience)

    def time_ranking(self) -> AbstractContextManager[None]:
        """Time ranking and clipping."""
        return _observe_seconds(self._ranking)

    def time_redaction(self) -> AbstractContextManager[None]:
        """Time redaction."""
        return _observe_seconds(self._redaction)

    def time_tokenisation(self) -> AbstractContextManager[None]:
        """Time token counting and fitting."""
        return _observe_seconds(self._tokenisation)

    def time_prompt(self) -> AbstractContextManager[None]:
        """Time message assembly."""
        return _observe_seconds(self._prompt)

    def record_tokens(self, *, before_budget: int, after_budget: int, after_redaction: int, prompt_tokens: int) -> None:
        """Set the size of the last prompt, before and after fitting."""
        self._before.set(before_budget)
        self._after.set(after_budget)
        self._redacted.set(after_redaction)
        self._tokens.set(prompt_tokens)

    def record_use(self, *, snippets: int, utilization: float) -> None:
        """Observe the number of memories in a prompt, and the share of the token limit it uses."""
        self._count.observe(snippets)
        self._share.observe(utilization)

    def inc_prompt(self) -> None:
        """Count one prompt."""
        self._prompts.inc()

    def inc_snippets(self, *, stage: str, count: int) -> None:
        """Count memories that passed a stage."""
        self._snippets.labels(stage).inc(count)

    def inc_degradation(self, reason: str) -> None:
        """Count a degradation, by reason."""
        self._degraded.labels(reason).inc()


@contextmanager
def _observe_seconds(*histograms: Histogram) -> Generator[None]:
    """Observe the duration of the block, also if it raises."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - start
        for histogram in histograms:
            histogram.observe(seconds)


class WorkspaceMetrics:
    """Metrics of workspace builds: histograms of phases and budget share, and counters."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "contexture_workspace_seconds",
            "Duration of workspace builds, by phase.",
            ("phase",),
            buckets=TOTAL_BUCKETS,
            registry=registry,
        )
        self._share = Histogram(
            "contexture_workspace_token_utilization",
            "Share of the token budget that a workspace context uses.",
            buckets=SHARE_BUCKETS,
            registry=registry,
        )
        self._blocks = Counter(
            "contexture_workspace_blocks_total", "Candidates, by state in the ledger.", ("state",), registry=registry
        )
        self._lost = Counter(
            "contexture_workspace_degradation_total", "Degradations, by source.", ("source",), registry=registry
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


def watch_memory(registry: CollectorRegistry, read: Callable[[], tuple[HealthState, float, bool]]) -> None:
    """Create gauges of the memory service: its state, the open breaker, and whether it refuses us."""
    states = list(HealthState)
    for name, text, value in (
        ("state", "0 normal, 1 degraded, 2 down.", lambda: float(states.index(read()[0]))),
        ("breaker_open_seconds", "Seconds for which the breaker still rejects calls.", lambda: read()[1]),
        ("refused", "1 while the memory service refuses our key or user.", lambda: float(read()[2])),
    ):
        Gauge(f"contexture_memory_{name}", text, registry=registry).set_function(value)


class CacheMetrics(Collector):
    """Collector of search cache hits and misses, which `read` returns on each scrape."""

    def __init__(self, registry: CollectorRegistry, read: Callable[[], tuple[int, int]]) -> None:
        self._read = read
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Yield the counts of hits and misses."""
        found = CounterMetricFamily("contexture_search_cache", "Searches, by cache hit or miss.", labels=["result"])
        for result, count in zip(("hit", "miss"), self._read(), strict=True):
            found.add_metric([result], count)
        yield found


_WORKER_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class WorkerMetrics:
    """Metrics of workers: message duration by outcome, and retries."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "contexture_worker_seconds",
            "Time from delivery to acknowledgement of a message, by outcome.",
            ("outcome",),
            buckets=_WORKER_BUCKETS,
            registry=registry,
        )
        self._retries = Counter("contexture_worker_retries_total", "Retries of messages.", registry=registry)

    def message_ended(self, outcome: str, seconds: float) -> None:
        """Observe the duration of a message, by outcome."""
        self._seconds.labels(outcome).observe(seconds)

    def message_retried(self) -> None:
        """Count a retry."""
        self._retries.inc()
