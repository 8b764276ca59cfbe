"""Which tokenizer measures which model."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache

from contexture.adapters.tokens.bpe import ENCODINGS, BytePairCounter
from contexture.adapters.tokens.estimate import EstimatedCounter, Margin
from contexture.errors import InvalidRequest
from contexture.ports import TokenCounter

# Margins over cl100k_base, one step above the smallest that keep every measured text (English, Russian, code, emoji,
# mixtures, awkward strings) at or above Claude 2's tokenizer, and at or above both that one and p50k_base.
ESTIMATES = {
    "estimate-claude": Margin(factor=1.3, letter=0.4, fixed=1),
    "estimate-any": Margin(factor=1.4, byte=0.7, fixed=8),
}
BASE = "cl100k_base"
UNKNOWN = "estimate-any"

# The first pattern that fits one part of `provider/model` or `provider:model` decides.
MODELS = (
    ("gpt-5*", "o200k_base"),
    ("gpt-4o*", "o200k_base"),
    ("gpt-4.1*", "o200k_base"),
    ("gpt-4.5*", "o200k_base"),
    ("gpt-oss*", "o200k_base"),
    ("chatgpt-4o*", "o200k_base"),
    ("o[134]", "o200k_base"),
    ("o[134]-*", "o200k_base"),
    ("gpt-4", "cl100k_base"),
    ("gpt-4-*", "cl100k_base"),
    ("gpt-3.5*", "cl100k_base"),
    ("gpt-35*", "cl100k_base"),
    ("text-embedding-3*", "cl100k_base"),
    ("text-embedding-ada-002", "cl100k_base"),
    ("*claude-*", "estimate-claude"),
    ("gemini-*", "estimate-claude"),
)


def counter_for(model_or_encoding: str) -> TokenCounter:
    """The counter for a model, with or without its provider, or for an encoding by its own name.

    Names that are not in the table get an estimate with a wide margin, whose `exact` is False.
    """
    name = model_or_encoding.strip().lower()
    parts = [part for part in re.split("[/:]", name) if part]
    if not parts or name.endswith(("/", ":")):
        raise InvalidRequest(f"{model_or_encoding!r} names no model; give one such as 'gpt-5' or 'openai/gpt-4o'")
    if name in ENCODINGS or name in ESTIMATES:
        return _counter(name)
    return _counter(_encoding(parts))


def _encoding(parts: list[str]) -> str:
    return next(
        (encoding for pattern, encoding in MODELS if any(fnmatchcase(part, pattern) for part in parts)), UNKNOWN
    )


@cache
def _counter(encoding: str) -> TokenCounter:
    if encoding in ENCODINGS:
        return BytePairCounter(encoding)
    return EstimatedCounter(encoding, BytePairCounter(BASE), ESTIMATES[encoding])
