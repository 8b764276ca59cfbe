"""The dashboard and the metrics page speak of metrics that exist, and of all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from contexture.adapters.prometheus import TurnMetrics
from contexture.builders.telemetry import TOTAL_PHASE, Stopwatch
from contexture.conversation import HealthState
from contexture.errors import SourceUnavailable
from contexture.service.app import MetricsMiddleware
from contexture.testing.doubles import ScriptedMemory
from support.turns import TurnBench, chat, memories

DOCS = Path(__file__).parents[2] / "docs" / "operations"
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = [
    pytest.param(target["expr"], id=f"{panel['title']}: {target['legendFormat']}")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
NAME = re.compile(r"\b(?:thinking|context|contexture)_\w+")
BY = re.compile(r"\bby \(([^)]*)\)")


def series(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Every series by its name, with its labels."""
    return {
        name: set(labels)
        for family, labels in (
            (metric, getattr(collector, "_labelnames", ()))
            for collector in registry._collector_to_names
            for metric in collector.describe()
        )
        for name in _names(family)
    }


def _names(family) -> list[str]:
    if family.type == "counter":
        return [f"{family.name}_total"]
    return [family.name] if family.type == "gauge" else [f"{family.name}{end}" for end in ("_bucket", "_sum", "_count")]


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The metrics of turns and of requests."""
    registry = CollectorRegistry()
    TurnMetrics(registry)
    MetricsMiddleware(lambda *_: None, registry=registry)
    return series(registry)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_panel_asks_for_series_and_labels_that_exist(expression, known):
    """A panel whose metric or label is not there would stay empty."""
    names = NAME.findall(expression)
    labels = {label.strip() for group in BY.findall(expression) for label in group.split(",")}

    assert names
    assert set(names) <= known.keys()
    assert labels - {"le"} <= set().union(*(known[name] for name in names))


def test_every_metric_has_a_panel_and_a_row(known):
    """What is measured is shown, and explained on the page."""
    shown = " ".join(expression.values[0] for expression in EXPRESSIONS)
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}

    assert [] == [name for name in sorted(families) if name not in shown]
    assert [] == [name for name in sorted(families) if f"`{name}`" not in page]


async def test_a_build_reports_every_phase_and_every_number():
    """After one normal build each histogram has one observation and each gauge its value."""
    registry = CollectorRegistry()
    bench = TurnBench(memory=ScriptedMemory(recalls=memories("alpha", "beta")), metrics=TurnMetrics(registry))

    built = await bench.builder().build_for_turn({"user_message": "hi", "history": chat(2)})

    phases = ("total", "salience", "ranking", "redaction", "tokenisation", "prompt")
    assert [1.0] * 6 == [registry.get_sample_value(f"thinking_{phase}_seconds_count") for phase in phases]
    assert 1.0 == registry.get_sample_value("thinking_retrieval_seconds_count", {"state": "normal"})
    assert 2.0 == registry.get_sample_value("context_builder_snippets_total", {"stage": "final"})
    assert built.tokens == registry.get_sample_value("context_prompt_tokens")
    assert built.tokens / 4_096 == registry.get_sample_value("context_builder_token_utilization_sum")
    assert built.timings.keys() == {"retrieval", *phases}


async def test_phases_add_up_to_the_total():
    """No phase counts the seconds of another one: scoring happens inside of retrieval."""
    bench = TurnBench(memory=ScriptedMemory(recalls=memories("alpha", "beta")))
    seconds = (await bench.builder().build_for_turn({"user_message": "hi", "history": chat(2)})).timings
    watch = Stopwatch()
    with watch.phase("outer"), watch.phase("inner"):
        spin = sum(range(200_000))

    assert sum(spent for name, spent in seconds.items() if name != TOTAL_PHASE) <= seconds[TOTAL_PHASE]
    assert spin
    assert watch.seconds["outer"] < watch.seconds["inner"]


async def test_a_failed_recall_is_counted_by_its_kind():
    """The reason is the kind of failure, never its words."""
    registry = CollectorRegistry()
    memory = ScriptedMemory(failures=[SourceUnavailable("tenant acme is gone")])

    await TurnBench(memory=memory, metrics=TurnMetrics(registry)).builder().build_for_turn({"user_message": "hi"})

    assert 1.0 == registry.get_sample_value("context_builder_degradation_total", {"reason": "SourceUnavailable"})


async def test_nothing_is_retrieved_while_memory_is_down():
    """A build without memory has no retrieval to time."""
    registry = CollectorRegistry()

    await (
        TurnBench(state=HealthState.DOWN, metrics=TurnMetrics(registry))
        .builder()
        .build_for_turn({"user_message": "hi"})
    )

    assert 0.0 == registry.get_sample_value("context_builder_retrieval_seconds_count")
