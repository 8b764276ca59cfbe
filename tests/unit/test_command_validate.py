"""Each rule of a finished context, broken once."""

from __future__ import annotations

import copy

import pytest

from contexture.builders.command.build import RULES, check_context
from contexture.errors import InvalidRequest
from support.commands import CommandBench, ScriptedNews, found


@pytest.fixture
async def context():
    """A context of six documents that keeps every rule."""
    news = ScriptedNews([[found(f"a{at}", f"Pump {at} leaks.") for at in range(6)]])
    built = await CommandBench(news=news).builder().build_context({"raw_command": "/ask", "args": "topic=pump"})
    return copy.deepcopy(built.to_dict())


BROKEN = {
    "command": [(("command",), "/weather", "'/weather' is not supported")],
    "window": [
        (("retrieval", "window"), "5h", "'5h' is not one of 6h"),
        (("params", "window"), "5h", "'5h' is not one of 6h"),
    ],
    "docs": [(("retrieval", "docs"), [], "there are none")],
    "k_final": [
        (("retrieval", "k_final"), 7, "7 is not the number of documents, 6"),
        (("params", "k_final"), 4, "`params` has 4, which is not the number of documents, 6"),
        (("params", "k_final"), 11, "`params` has 11, which is not the number of documents, 6"),
    ],
    "documents": [
        (("retrieval", "docs", 0, "date"), "01.06.2026", "docs[0] is dated '01.06.2026'"),
        (("retrieval", "docs", 0, "date"), "2026-02-30", "docs[0] is dated '2026-02-30'"),
        (("retrieval", "docs", 0, "date"), None, "docs[0] is dated None"),
        (("retrieval", "docs", 1, "lang"), "de", "docs[1] is in 'de'"),
        (("retrieval", "docs", 2, "snippet"), "x" * 241, "docs[2] has a snippet of 241 characters"),
        (("retrieval", "docs", 3, "title"), " ", "docs[3] has no title"),
    ],
    "models": [(("models", "primary"), "", "no primary model")],
    "limits": [
        (("limits", "max_tokens"), 2_047, "max_tokens is 2047, below 2048"),
        (("limits", "budget_cents"), 24, "budget_cents is 24, below 25"),
        (("limits", "timeout_s"), 7.9, "timeout_s is 7.9, below 8"),
    ],
    "telemetry": [(("telemetry", "correlation_id"), "", "no correlation_id")],
}
CASES = [(rule, *case) for rule, cases in BROKEN.items() for case in cases]


def changed(context, path, value):
    """The context with one value changed."""
    *steps, last = path
    place = context
    for step in steps:
        place = place[step]
    place[last] = value
    return context


def test_there_are_eight_rules_and_each_is_broken_here():
    """No rule goes untried."""
    assert len(RULES) == 8
    assert set(RULES) == set(BROKEN)


def test_a_whole_context_keeps_every_rule(context):
    """What a builder gives is valid, strictly too."""
    check_context(context, strict_k=True)


@pytest.mark.parametrize(("rule", "path", "value", "sentence"), CASES)
def test_a_broken_rule_is_named(context, rule, path, value, sentence):
    """The error names the rule and what is wrong."""
    with pytest.raises(InvalidRequest) as refusal:
        check_context(changed(context, path, value))

    assert f"{rule}: {sentence}" in str(refusal.value)


def test_more_than_ten_documents_break_the_rule(context):
    """Documents are counted, whatever the number says."""
    documents = context["retrieval"]["docs"] * 2
    whole = changed(changed(context, ("retrieval", "docs"), documents), ("retrieval", "k_final"), 12)

    with pytest.raises(InvalidRequest, match="12 is above 10"):
        check_context(whole)


def test_every_broken_rule_is_named_at_once(context):
    """Several slips are reported together."""
    with pytest.raises(InvalidRequest, match=r"command: .*; telemetry: "):
        check_context(changed(changed(context, ("command",), "/x"), ("telemetry", "correlation_id"), ""))


def test_few_documents_break_a_rule_only_strictly(context):
    """Four documents will do unless five are insisted on."""
    documents = context["retrieval"]["docs"][:4]
    thin = changed(changed(context, ("retrieval", "docs"), documents), ("retrieval", "k_final"), 4)
    thin = changed(thin, ("params", "k_final"), 4)
    check_context(thin)

    with pytest.raises(InvalidRequest, match="k_final: 4 documents are fewer than 5"):
        check_context(thin, strict_k=True)
