"""Masks known secret values as `§§secret(KEY)`, also in a stream that splits a value.

A placeholder in a memory or document is never expanded in a prompt. Only `expand_secrets` inserts values, into the
arguments of a tool that is about to run; nothing in the pipeline calls it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping

from msgspec.structs import replace

from contexture.ports import Secrets
from contexture.types import Candidate

_SECRET_PLACEHOLDER = re.compile(r"§§secret\(([^()\s]{1,256})\)")
_MIN_TELLING_CHARS = 8  # a part of a value at the edge of a passage is masked from this length on


def secret_placeholder(key: str) -> str:
    """The placeholder of the secret with this key."""
    return f"§§secret({key})"


def has_masked_secret(text: str) -> bool:
    """Whether a text contains the placeholder of a secret."""
    return _SECRET_PLACEHOLDER.search(text) is not None


class SecretMask:
    """Replaces known secret values with placeholders, leftmost match first, then longest.

    SecretMask({"DB": "hunter2"}).mask("password hunter2")     # 'password §§secret(DB)'

    Empty values are ignored. Placeholders of known keys are left alone, so masking twice changes nothing.
    """

    __slots__ = ("_long", "_longest", "_pattern", "_shown", "_sorted", "_starts")

    def __init__(self, known: Mapping[str, str]) -> None:
        shown = {secret_placeholder(key): secret_placeholder(key) for key in known}
        # When two keys share a value, the first key by name is shown.
        shown.update((value, secret_placeholder(key)) for key, value in sorted(known.items(), reverse=True) if value)
        self._shown = shown
        self._long = [item for item in shown.items() if len(item[0]) > _MIN_TELLING_CHARS and item[0] != item[1]]
        self._sorted = sorted(shown)
        self._starts = frozenset(value[0] for value in shown)
        self._longest = max(map(len, shown), default=0)
        by_length = sorted(shown, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join(map(re.escape, by_length))) if shown else None

    def mask(self, text: str) -> str:
        """`text` with every known value replaced."""
        return self._pattern.sub(lambda match: self._shown[match[0]], text) if self._pattern else text

    def mask_passage(self, text: str) -> str:
        """A passage of a longer text with every known value replaced, including values cut by its edges."""
        for value, shown in self._long:
            if len(text) >= _MIN_TELLING_CHARS and text in value:
                return shown
            text = _mask_cut_values(text, value, shown)
        return self.mask(text)

    def mask_settled_part(self, text: str) -> tuple[str, str]:
        """The masked part of `text` that no continuation can change, and the unmasked rest."""
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
        """The offset of the longest suffix of `text` that is a proper prefix of a value."""
        first = max(position, len(text) - self._longest + 1)
        return next(
            (at for at in range(first, len(text)) if text[at] in self._starts and self._begins(text[at:])), len(text)
        )

    def _begins(self, piece: str) -> bool:
        at = bisect_left(self._sorted, piece)
        if at < len(self._sorted) and self._sorted[at] == piece:
            at += 1
        return at < len(self._sorted) and self._sorted[at].startswith(piece)


def _mask_cut_values(text: str, value: str, shown: str) -> str:
    """`text` with a suffix of `value` at its start and a prefix of it at its end masked, if long enough."""
    if len(text) < _MIN_TELLING_CHARS:
        return text
    at = -1 if text.startswith(value) else value.find(text[:_MIN_TELLING_CHARS], 1)
    while at > 0 and not text.startswith(value[at:]):
        at = value.find(text[:_MIN_TELLING_CHARS], at + 1)
    if at > 0:
        text = shown + text[len(value) - at :]
    end = -1 if text.endswith(value) else value.rfind(text[-_MIN_TELLING_CHARS:], 0, -1)
    while end >= 0 and not text.endswith(value[: end + _MIN_TELLING_CHARS]):
        end = value.rfind(text[-_MIN_TELLING_CHARS:], 0, end + _MIN_TELLING_CHARS - 1)
    return text if end < 0 else text[: -(end + _MIN_TELLING_CHARS)] + shown


class StreamingSecretMask:
    """Masks a stream of chunks; the joined output equals the masked whole text, however it was split.

    It buffers only a suffix that may be the beginning of a known value; call `flush` at the end of the stream.
    """

    __slots__ = ("_held", "_mask")

    def __init__(self, known: Mapping[str, str]) -> None:
        self._mask = SecretMask(known)
        self._held = ""

    def feed(self, chunk: str) -> str:
        """The masked text that can be shown after this chunk."""
        shown, self._held = self._mask.mask_settled_part(self._held + chunk)
        return shown

    def flush(self) -> str:
        """The masked rest of the buffer; the mask is then ready for another text."""
        shown, self._held = self._mask.mask(self._held), ""
        return shown


def mask_secrets(text: str, known: Mapping[str, str]) -> str:
    """`text` with every known secret value shown as its placeholder."""
    return SecretMask(known).mask(text)


def expand_secrets(text: str, known: Mapping[str, str]) -> str:
    """Replaces placeholders with secret values; only for a tool's arguments right before it runs.

    The result must not be shown to a model, logged, stored or sent anywhere but to the tool. Placeholders of unknown
    keys are left unchanged, and values are not expanded again.
    """
    return _SECRET_PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), text)


EMPTY_MASK = SecretMask({})
"""A mask without secrets; it changes nothing."""


class SecretMaskCache:
    """The mask of the secrets known now; rebuilt only when they change."""

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = secrets
        self._made: tuple[Mapping[str, str], SecretMask] = ({}, EMPTY_MASK)

    def current(self) -> SecretMask:
        """The current mask; raises whatever the secrets port raises, because then nothing may be shown."""
        known = dict(self._secrets.known()) if self._secrets else {}
        if known != self._made[0]:
            self._made = (known, SecretMask(known))
        return self._made[1]


def mask_candidate(candidate: Candidate, mask: SecretMask) -> Candidate:
    """The candidate with its text masked; facts computed from the unmasked text are dropped if it changed."""
    text = mask.mask_passage(candidate.text)
    if text == candidate.text:
        return candidate
    return replace(candidate, text=text, sentences=(), origins=(), weights=(), redactions=None, tokens={}, simhash=0)
