"""What a redactor found in a text, remembered: texts come back with the next build."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.ports import Redactor
from contexture.types import Span, content_hash

_REMEMBERED = 4_096


class RememberedScans:
    """A redactor that scans equal texts once: a conversation sends its history again with every turn.

    What is remembered are places, never words.
    """

    def __init__(self, redactor: Redactor, size: int = _REMEMBERED) -> None:
        self._redactor = redactor
        self._size = size
        self._seen: dict[tuple[str, str, str], tuple[Span, ...]] = {}

    @property
    def rules(self) -> str:
        """Those of the redactor."""
        return self._redactor.rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """The spans the redactor finds, or found when it saw this text last."""
        key = (content_hash(text), lang, self._redactor.rules)
        found = self._seen.pop(key, None)
        if found is None:
            found = tuple(self._redactor.scan(text, lang))
        self._seen[key] = found  # at the end: the least recently used goes first
        if len(self._seen) > self._size:
            self._seen.pop(next(iter(self._seen)))
        return found
