"""Known secret values are shown as `§§secret(KEY)`, also when a value arrives in pieces.

A placeholder that stands in memory or in a document is never expanded into a prompt. Only `expand` puts values in, for
the arguments of a tool that is about to run; nothing in the pipeline calls it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"§§secret\(([^()\s]{1,256})\)")
_TELLING = 8  # characters of a value at the edge of a passage that give it away


def placeholder(key: str) -> str:
    """How the secret of this key is shown."""
    return f"§§secret({key})"


def is_masked(text: str) -> bool:
    """Whether a secret is hidden in a text."""
    return _PLACEHOLDER.search(text) is not None


class Mask:
    """Replaces known secret values: the leftmost first, and of those that start together the longest.

    Mask({"DB": "hunter2"}).mask("password hunter2")     # 'password §§secret(DB)'

    Empty values are ignored. Placeholders of known keys are left alone, so masking twice changes nothing.
    """

    __slots__ = ("_long", "_longest", "_pattern", "_shown", "_sorted", "_starts")

    def __init__(self, known: Mapping[str, str]) -> None:
        shown = {placeholder(key): placeholder(key) for key in known}
        # When two keys share a value, the first key by name is shown.
        shown.update((value, placeholder(key)) for key, value in sorted(known.items(), reverse=True) if value)
        self._shown = shown
        self._long = [item for item in shown.items() if len(item[0]) > _TELLING and item[0] != item[1]]
        self._sorted = sorted(shown)
        self._starts = frozenset(value[0] for value in shown)
        self._longest = max(map(len, shown), default=0)
        by_length = sorted(shown, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join(map(re.escape, by_length))) if shown else None

    def mask(self, text: str) -> str:
        """`text` without any known value."""
        return self._pattern.sub(lambda match: self._shown[match[0]], text) if self._pattern else text

    def piece(self, text: str) -> str:
        """A passage of a longer text without any known value, nor a part of one that an edge of the passage cuts."""
        for value, shown in self._long:
            if len(text) >= _TELLING and text in value:
                return shown
            text = _without_edges(text, value, shown)
        return self.mask(text)

    def split(self, text: str) -> tuple[str, str]:
        """The masked part of `text` that no continuation can change, and the rest as it stands."""
        if self._pattern is None:
            return text, ""
        done: list[str] = []
        position = 0
        while True:
            open_from = self._open_from(text, position)
            match = self._pattern.search(text, position)
            if match is None or open_from <= match.start():
                done.append(text[position:open_from])
                return "".join(done), text[open_from:]
            done += (text[position : match.start()], self._shown[match[0]])
            position = match.end()

    def _open_from(self, text: str, position: int) -> int:
        """Where the earliest end of `text` starts that is the beginning of a longer value."""
        first = max(position, len(text) - self._longest + 1)
        return next(
            (at for at in range(first, len(text)) if text[at] in self._starts and self._begins(text[at:])), len(text)
        )

    def _begins(self, piece: str) -> bool:
        at = bisect_left(self._sorted, piece)
        if at < len(self._sorted) and self._sorted[at] == piece:
            at += 1
        return at < len(self._sorted) and self._sorted[at].startswith(piece)


def _without_edges(text: str, value: str, shown: str) -> str:
    """`text` without the end of `value` in front and its beginning behind, where they tell enough."""
    if len(text) < _TELLING:
        return text
    at = -1 if text.startswith(value) else value.find(text[:_TELLING], 1)
    while at > 0 and not text.startswith(value[at:]):
        at = value.find(text[:_TELLING], at + 1)
    if at > 0:
        text = shown + text[len(value) - at :]
    end = -1 if text.endswith(value) else value.rfind(text[-_TELLING:], 0, -1)
    while end >= 0 and not text.endswith(value[: end + _TELLING]):
        end = value.rfind(text[-_TELLING:], 0, end + _TELLING - 1)
    return text if end < 0 else text[: -(end + _TELLING)] + shown


class StreamMask:
    """Masks a text that arrives in pieces; what it returns, joined, is the masked whole, however it was cut.

    It holds back only an end that may be the beginning of a known value, so `flush` when the stream is over.
    """

    __slots__ = ("_held", "_mask")

    def __init__(self, known: Mapping[str, str]) -> None:
        self._mask = Mask(known)
        self._held = ""

    def feed(self, chunk: str) -> str:
        """What can be shown after this piece."""
        shown, self._held = self._mask.split(self._held + chunk)
        return shown

    def flush(self) -> str:
        """What was held back; the mask is then ready for another text."""
        shown, self._held = self._mask.mask(self._held), ""
        return shown


def mask(text: str, known: Mapping[str, str]) -> str:
    """`text` with every known secret value shown as its placeholder."""
    return Mask(known).mask(text)


def expand(text: str, known: Mapping[str, str]) -> str:
    """Puts secret values in: for a tool's arguments right before it runs, and for nothing else.

    What this returns must not be shown to a model, logged, stored or sent anywhere but to the tool. Unknown keys stay
    as they are, and values are not expanded again.
    """
    return _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), text)
