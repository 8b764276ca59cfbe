"""Several redactors as one."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.adapters.redaction.rules import fingerprint
from contexture.adapters.redaction.spans import settle
from contexture.ports import Redactor
from contexture.types import Span


class CompositeRedactor:
    """Finds what any of its parts finds; where they overlap, the longest names the whole stretch."""

    def __init__(self, parts: Sequence[Redactor]) -> None:
        self._parts = tuple(parts)
        self._rules = f"all-{fingerprint(part.rules for part in self._parts)}"

    @property
    def rules(self) -> str:
        """Changes whenever the rules of a part do."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap."""
        return settle(span for part in self._parts for span in part.scan(text, lang))
