"""How much two sentences say the same, by the words they share and how rare those are here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from contexture.answer.commands.reading import Sentence


class Likeness:
    """Compares the sentences it was made from: 0 when they share no word, 1 when they share all.

    A word that many of the sentences hold counts less, so a common subject alone makes nothing alike.
    """

    def __init__(self, found: Sequence[Sentence]) -> None:
        holders = Counter(term for sentence in found for term in sentence.terms)
        total = len(found)
        self._worth = {term: math.log(1 + total / count) for term, count in holders.items()}

    def __call__(self, one: Sentence, other: Sentence) -> float:
        """From 0 to 1, the same in both directions."""
        shared = self._weight(one.terms & other.terms)
        if not shared:
            return 0.0
        return shared / math.sqrt(self._weight(one.terms) * self._weight(other.terms))

    def worth(self, terms: frozenset[int]) -> float:
        """What these words say together; words that no sentence holds say nothing."""
        return self._weight(terms)

    def _weight(self, terms: frozenset[int]) -> float:
        return math.fsum(self._worth.get(term, 0.0) for term in sorted(terms))
