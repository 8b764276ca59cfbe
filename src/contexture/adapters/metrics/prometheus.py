"""The metrics of turn builds, for Prometheus; no label ever holds a tenant, a user or a text."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PHASE = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
RETRIEVAL = (*PHASE, 2.0)
TOTAL = (*RETRIEVAL, 5.0)
ASKING = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
COUNTS = (0, 1, 3, 5, 8, 10, 15, 20)
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


class TurnMetrics:
    """Histograms of every phase, gauges of the last prompt's size, and counters, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def phase(name: str, text: str) -> Histogram:
            return Histogram(f"thinking_{name}_seconds", text, buckets=PHASE, registry=registry)

        def size(name: str, text: str) -> Gauge:
            return Gauge(name, text, registry=registry)

        self._total = Histogram("thinking_total_seconds", "Whole builds.", buckets=TOTAL, registry=registry)
        self._retrieval = Histogram(
            "thinking_retrieval_seconds",
            "Asking memory, by its state.",
            ("state",),
            buckets=RETRIEVAL,
            registry=registry,
        )
        self._salience = phase("salience", "Scoring memories.")
        self._ranking = phase("ranking", "Ranking and clipping memories.")
        self._redaction = phase("redaction", "Redaction.")
        self._tokenisation = phase("tokenisation", "Counting tokens and fitting the limit.")
        self._prompt = phase("prompt", "Assembling messages.")
        self._before = size("context_tokens_before_budget", "Tokens of the last prompt before its limit was applied.")
        self._after = size("context_tokens_after_budget", "Tokens of the last prompt after its limit was applied.")
        self._redacted = size("context_tokens_after_redaction", "Tokens of the last prompt's material, redacted.")
        self._tokens = size("context_prompt_tokens", "Tokens of the last prompt.")
        self._prompts = Counter("context_builder_prompt_total", "Prompts built.", registry=registry)
        self._snippets = Counter(
            "context_builder_snippets_total", "Memories that passed a stage.", ("stage",), registry=registry
        )
        self._asking = Histogram(
            "context_builder_retrieval_seconds", "Asking memory.", buckets=ASKING, registry=registry
        )
        self._count = Histogram(
            "context_builder_snippet_count", "Memories in a prompt.", buckets=COUNTS, registry=registry
        )
        self._share = Histogram(
            "context_builder_token_utilization",
            "Share of its limit a prompt spends.",
            buckets=SHARES,
            registry=registry,
        )
        self._degraded = Counter(
            "context_builder_degradation_total",
            "Losses of quality, by kind of failure.",
            ("reason",),
            registry=registry,
        )

    def time_total(self) -> AbstractContextManager[None]:
        """Around a whole build."""
        return _timed(self._total)

    def time_retrieval(self, state: str) -> AbstractContextManager[None]:
        """Around asking memory, by the state it is in."""
        return _timed(self._retrieval.labels(state), self._asking)

    def time_salience(self) -> AbstractContextManager[None]:
        """Around scoring."""
        return _timed(self._salience)

    def time_ranking(self) -> AbstractContextManager[None]:
        """Around ranking and clipping."""
        return _timed(self._ranking)

    def time_redaction(self) -> AbstractContextManager[None]:
        """Around redaction."""
        return _timed(self._redaction)

    def time_tokenisation(self) -> AbstractContextManager[None]:
        """Around counting and fitting."""
        return _timed(self._tokenisation)

    def time_prompt(self) -> AbstractContextManager[None]:
        """Around assembling the messages."""
        return _timed(self._prompt)

    def record_tokens(self, *, before_budget: int, after_budget: int, after_redaction: int, prompt_tokens: int) -> None:
        """How large the last prompt was, before and after fitting."""
        self._before.set(before_budget)
        self._after.set(after_budget)
        self._redacted.set(after_redaction)
        self._tokens.set(prompt_tokens)

    def record_use(self, *, snippets: int, utilization: float) -> None:
        """How many memories the last prompt holds, and what share of its limit it spends."""
        self._count.observe(snippets)
        self._share.observe(utilization)

    def inc_prompt(self) -> None:
        """One more prompt was built."""
        self._prompts.inc()

    def inc_snippets(self, *, stage: str, count: int) -> None:
        """So many memories passed a stage."""
        self._snippets.labels(stage).inc(count)

    def inc_degradation(self, reason: str) -> None:
        """Something that should have helped did not."""
        self._degraded.labels(reason).inc()


@contextmanager
def _timed(*histograms: Histogram) -> Generator[None]:
    """Observe how long the block takes, however it ends."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - start
        for histogram in histograms:
            histogram.observe(seconds)
