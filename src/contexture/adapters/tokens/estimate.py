"""Token estimates for models whose tokenizer is not public, chosen to err upwards."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import is_normalized, normalize

from contexture.adapters.tokens.framing import framed
from contexture.ports import TokenCounter
from contexture.types import Message

BEYOND_GREEK_AND_CYRILLIC = re.compile("[\u0590-\U0010ffff]")

PROPORTIONAL_STEPS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Margin:
    """How far an estimate stays above an exact count of another tokenizer.

    `letter` is added per character of a script beyond Latin, Greek and Cyrillic; `byte` per
    UTF-8 byte beyond the first of each character; `fixed` once per text that is not empty.
    """

    factor: float
    letter: float = 0.0
    byte: float = 0.0
    fixed: int = 0


class EstimatedCounter:
    """Counts with a known tokenizer and adds a margin, so that a budget is not overrun.

    Compatibility characters are counted in the form to which some tokenizers first expand
    them when that form is longer.
    """

    def __init__(self, encoding: str, base: TokenCounter, margin: Margin) -> None:
        self._encoding = encoding
        self._base = base
        self._margin = margin

    @property
    def encoding(self) -> str:
        """The name of this estimate, which changes when its margin does."""
        return self._encoding

    @property
    def exact(self) -> bool:
        """Always false."""
        return False

    def count(self, text: str) -> int:
        """At least the tokens of a bare text, as far as margins measured on other tokenizers hold."""
        if not text:
            return 0
        if text.isascii():
            return self._with_margin(self._base.count(text), "")
        plain = self._with_margin(self._base.count(text), text)
        if is_normalized("NFKC", text):
            return plain
        expanded = normalize("NFKC", text)
        return max(plain, self._with_margin(self._base.count(expanded), expanded))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat with the framing of OpenAI's models, which is no shorter than others'."""
        return framed(messages, self.count)

    def prefix(self, text: str, limit: int) -> str:
        """A prefix that counts at most `limit`, and exactly `limit` where such a one is met."""
        if limit <= 0:
            return ""
        # An estimate is never below its base, so the answer lies within the base's prefix.
        window = self._base.prefix(text, limit)
        total = self.count(window)
        if total <= limit:
            return window
        return window[: self._cut(window, limit, len(window) * limit // total)]

    def _cut(self, window: str, limit: int, guess: int) -> int:
        fits, over = 0, len(window)
        used = steps = 0
        while over - fits > 1 and used < limit:
            middle = min(max(guess, fits + 1), over - 1)
            count = self.count(window[:middle])
            if count <= limit:
                fits, used = middle, count
            else:
                over = middle
            # Tokens are spread evenly enough to step by proportion; halving ends it where they are not.
            steps += 1
            stride = middle * limit // count
            guess = stride if steps < PROPORTIONAL_STEPS and fits < stride < over else (fits + over) // 2
        return fits

    def _with_margin(self, tokens: int, wide: str) -> int:
        margin = self._margin
        letters = len(BEYOND_GREEK_AND_CYRILLIC.findall(wide))
        surplus = len(wide.encode("utf-8", "surrogatepass")) - len(wide)
        return math.ceil(tokens * margin.factor + letters * margin.letter + surplus * margin.byte) + margin.fixed
