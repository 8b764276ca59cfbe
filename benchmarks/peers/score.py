"""From what a contestant answered to the figures of its row."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.material import TOKENS, Asked, Document
from benchmarks.timing import Numbers, percentile

from contexture.adapters.token_counters import counter_for
from contexture.evaluation._harness import ndcg, recall

MODEL = "gpt-4o"

_OPENING = 60


def speed(told: Mapping[str, Any]) -> Numbers:
    """Seconds to load, megabytes, and milliseconds of retrieving and packing."""
    wall = told["wall_ms"]
    return {
        "load_s": told["load_s"],
        "rss_mb": told["rss_mb"],
        "p50_ms": statistics.median(wall),
        "p95_ms": percentile(wall, 0.95),
        "cpu_ms": told["cpu_ms"],
        "questions": len(wall),
    }


def budget(told: Mapping[str, Any], asked: Sequence[Asked]) -> Numbers:
    """How often a prompt holds more tokens than it may, by the language of the question, and the worst of all.

    Only the texts of a prompt are counted, not the framing of its messages.
    """
    counter = counter_for(MODEL)
    counts = [counter.count(answer["prompt"]) for answer in told["answers"]]
    numbers: Numbers = {"tokens_mean": statistics.mean(counts), "tokens_max": max(counts)}
    for lang in sorted({each.lang for each in asked}):
        of_lang = [count for count, each in zip(counts, asked, strict=False) if each.lang == lang]
        numbers[f"over_{lang}_share"] = statistics.mean(count > TOKENS for count in of_lang) if of_lang else 0.0
    return numbers


# A slow contestant is asked fewer questions, the first ones: answers are paired with as many.


def quality(told: Mapping[str, Any], asked: Sequence[Asked], documents: Sequence[Document]) -> Numbers:
    """How well the retrieved rank, and how often every gold record is at least begun in the prompt."""
    texts = {each.id: each.text for each in documents}
    pairs = [(each, answer) for each, answer in zip(asked, told["answers"], strict=False) if each.gold]
    if not pairs:
        return {}
    return {
        "ndcg@10": statistics.mean(ndcg(answer["ranking"], each.gold, 10) for each, answer in pairs),
        "recall@5": statistics.mean(recall(answer["ranking"], each.gold, 5) for each, answer in pairs),
        "gold_hit": statistics.mean(_shown(answer, each.gold, texts) for each, answer in pairs),
    }


def _shown(answer: Mapping[str, Any], gold: Sequence[str], texts: Mapping[str, str]) -> bool:
    """Whether every gold record is in the prompt, by what the contestant says or by the beginning of its text."""
    if answer["shown"] is not None:
        return set(gold) <= set(answer["shown"])
    return all(texts[each][:_OPENING] in answer["prompt"] for each in gold)
