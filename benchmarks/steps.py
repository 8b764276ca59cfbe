"""Steps of a build on their own; from many figures the worst is shown, and all are kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.documents import documents
from benchmarks.embedding import embedding
from benchmarks.micro import dedupe, fencing, packing
from benchmarks.pauses import BATCHES, pauses
from benchmarks.research import small_steps
from benchmarks.timing import Numbers
from benchmarks.tokens import token_counting
from benchmarks.turn import shared_prefix


@dataclass(frozen=True, slots=True)
class Step:
    """A measurement, and which of its figures stand for all of them: the greatest that the pattern matches."""

    measure: Callable[[], Numbers]
    worst: dict[str, str]

    def headline(self, numbers: Numbers) -> Numbers:
        """The figures to show; none of the measured ones are changed."""
        return {
            name: max(value for known, value in numbers.items() if re.fullmatch(pattern, known))
            for name, pattern in self.worst.items()
        }


STEPS = {
    "packing": Step(packing, {"pack_200_worst_p95_ms": r"pack_.*_p95_ms", "pack_200_worst_gap": r"pack_.*_gap_max"}),
    "dedupe": Step(dedupe, {"dedupe_100_worst_p95_ms": r"dedupe_100_.*_p95_ms"}),
    "fencing": Step(fencing, {"fence_10k_worst_p95_ms": r"fence_.*_p95_ms"}),
    "tokens": Step(token_counting, {"tokens_10k_worst_us": r"(o200k|cl100k)_base_.*_10k_us"}),
    "pages": Step(
        small_steps,
        {name: name for name in ("research_dedupe_100_p95_ms", "research_estimate_10k_p95_ms")},
    ),
    "documents": Step(
        documents, {name: name for name in ("documents_text_pages_per_s", "documents_drawn_pages_per_s")}
    ),
    "prefix": Step(
        shared_prefix,
        {name: name for name in ("turn_shared_prefix_share", "turn_shared_prefix_long_answers_share")},
    ),
    "pauses": Step(
        pauses, {f"pause_{name}_{unit}": f"pause_{name}_{unit}" for name in BATCHES for unit in ("ms", "share")}
    ),
    "embedding": Step(
        embedding,
        {
            "embed_query_minilm_p95_ms": r"minilm_english_query_ms_p95",
            "embed_query_minilm_cpu_ms": r"minilm_english_query_cpu_ms",
            "embed_query_use_p95_ms": r"use_english_query_ms_p95",
            "embed_query_use_cpu_ms": r"use_english_query_cpu_ms",
            "embed_passages_minilm_per_s": r"minilm_english_texts_per_s",
            "embed_passages_use_per_s": r"use_english_texts_per_s",
        },
    ),
}
