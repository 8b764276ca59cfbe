"""Token counts without a tokenizer.

A caller's function as a `TokenCounter`, and an estimate from letters and digits.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from contexture.ports import TokenCounter
from contexture.types import Message

CountText = Callable[[str], int]


class FunctionCounter:
    """A `TokenCounter` made from a function that counts one text.

    Roles and framing are not counted, so leave room for them. Such builds cannot be replayed: a capsule cannot name the
    function.
    """

    encoding = "function"
    exact = False

    def __init__(self, function: CountText) -> None:
        self._count = function

    def count(self, text: str) -> int:
        """The result of the function; 0 for an empty text."""
        return self._count(text) if text else 0

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of the contents and tool calls of all messages."""
        return sum(
            self._count_content(message.get("content"))
            + sum(self._count_json(call) for call in message.get("tool_calls", ()))
            for message in messages
        )

    def prefix(self, text: str, limit: int) -> str:
        """The longest prefix, found by bisection, that has at most `limit` tokens."""
        if self.count(text) <= limit:
            return text
        low, high = 0, len(text)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.count(text[:middle]) <= limit else (low, middle)
        return text[:low]

    def _count_content(self, content: object) -> int:
        if content is None or isinstance(content, str):
            return self.count(content or "")
        parts = cast("Sequence[dict[str, Any]]", content)
        return sum(self.count(part["text"]) if "text" in part else self._count_json(part) for part in parts)

    def _count_json(self, value: object) -> int:
        return self.count(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def as_token_counter(given: TokenCounter | CountText) -> TokenCounter:
    """The counter itself, or a function wrapped in a `FunctionCounter`."""
    return (
        FunctionCounter(given)
        if callable(given) and not hasattr(given, "count_messages")
        else cast("TokenCounter", given)
    )


_LATIN = re.compile("[A-Za-z]+")
_CYRILLIC = re.compile("[\u0400-\u04ff]+")
_DIGITS = re.compile("[0-9]+")
_DIGITS_PER_TOKEN = 3  # digits that make one token


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenWeights:
    """Tokens per word and letter of two scripts, per group of three digits, and per other character."""

    latin_word: float
    latin_letter: float
    cyrillic_word: float
    cyrillic_letter: float
    digits: float
    other: float


# Fitted by least squares of the relative error over English and Russian encyclopaedia articles, abstracts, reports
# and code.
TOKEN_WEIGHTS: Mapping[str, TokenWeights] = MappingProxyType(
    {
        "o200k_base": TokenWeights(
            latin_word=0.778, latin_letter=0.063, cyrillic_word=1.461, cyrillic_letter=0.054, digits=1.487, other=0.836
        ),
        "cl100k_base": TokenWeights(
            latin_word=0.737, latin_letter=0.074, cyrillic_word=1.329, cyrillic_letter=0.321, digits=1.495, other=0.819
        ),
    }
)
_DEFAULT_WEIGHTS = TOKEN_WEIGHTS["cl100k_base"]


def estimate_tokens(text: str, encoding: str = "o200k_base") -> int:
    """Estimated tokens of `text`: on average within 10 % for English and Russian; 0 only for an empty text."""
    if not text:
        return 0
    weights = TOKEN_WEIGHTS.get(encoding, _DEFAULT_WEIGHTS)
    latin, cyrillic, digits = _LATIN.findall(text), _CYRILLIC.findall(text), _DIGITS.findall(text)
    letters, strange = sum(map(len, latin)), sum(map(len, cyrillic))
    other = len(text) - letters - strange - sum(map(len, digits)) - text.count(" ") - text.count("\n")
    guess = (
        weights.latin_word * len(latin)
        + weights.latin_letter * letters
        + weights.cyrillic_word * len(cyrillic)
        + weights.cyrillic_letter * strange
        + weights.digits * sum(-(-len(run) // _DIGITS_PER_TOKEN) for run in digits)
        + weights.other * other
    )
    return max(1, round(guess))
