"""Masks known secret values as `§§secret(KEY)`, in any case and common encodings, also in a stream that splits a value.

A placeholder in a memory or document is never expanded in a prompt. Only `expand_secrets` inserts values, into the
arguments of a tool that is about to run; nothing in the pipeline calls it.
"""

import base64
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from contexture.ports import Secrets
from contexture.text.mapped import MappedText
from contexture.types import Candidate

_SECRET_PLACEHOLDER = re.compile(r"§§secret\(([^()\s]{1,256})\)")
_MIN_TELLING_CHARS = 8  # a part of a value at the edge of a passage is masked from this length on
_MIN_ENCODED_CHARS = 6  # shorter values are looked for as they are: their encodings occur by chance
_ESCAPE = r"%[0-7][0-9a-f]|%[c-f][0-9a-f](?:%[89ab][0-9a-f]){1,3}"
_BREAK = r"[ \t]{0,16}(?:\r?\n|\\n)[ \t>]{0,16}"
_ENCODED = re.compile(f"{_ESCAPE}|{_BREAK}", re.IGNORECASE)
# The end of a stream's text that its next chunk may turn into an escape or a line break.
_UNFINISHED = re.compile(
    r"(?:[ \t\r\n>]|\\n?){0,40}(?:%[c-f][0-9a-f](?:%[89ab][0-9a-f]){0,2})?(?:%[0-9a-f]?)?\Z", re.IGNORECASE
)
_MAX_UNFINISHED_CHARS = 64
_BASE64_RUN = re.compile(rf"[A-Za-z0-9+/_\-]{{{_MIN_ENCODED_CHARS},}}+")


def secret_placeholder(key: str) -> str:
    """The placeholder of the secret with this key."""
    return f"§§secret({key})"


def has_masked_secret(text: str) -> bool:
    """Whether a text contains the placeholder of a secret."""
    return _SECRET_PLACEHOLDER.search(text) is not None


def _fold_case(text: str) -> str:
    """Lower case, character for character, so that offsets stay."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _decode(text: str, blank: str) -> MappedText:
    """A copy with percent-encoding decoded and line breaks, with the blanks around them, replaced by `blank`."""
    edits: list[tuple[int, int, str]] = []
    for match in _ENCODED.finditer(text):
        found = match[0]
        if not found.startswith("%"):
            edits.append((match.start(), match.end(), blank))
            continue
        try:
            char = bytes.fromhex(found.replace("%", "")).decode()
        except UnicodeDecodeError:
            continue
        edits.append((match.start(), match.end(), blank if char in "\r\n" else char))
    return MappedText(text, edits)


def _encode_base64(value: str) -> Iterator[str]:
    """What every base64 text with this value inside contains: one string for each place in a group of three bytes."""
    data = value.encode("utf-8", "surrogatepass")
    for before, shared in ((0, 0), (1, 2), (2, 3)):  # characters that the bytes before the value share
        core = base64.b64encode(bytes(before) + data).decode()[shared : (before + len(data)) * 8 // 6]
        if len(core) >= _MIN_ENCODED_CHARS:
            yield core
            yield core.replace("+", "-").replace("/", "_")


class _Forms:
    """The strings that values have in one view of a text, each with what is shown for it; None shows it as it is."""

    def __init__(self, shown: Mapping[str, str | None]) -> None:
        self.shown = shown
        self.long = [(form, mask) for form, mask in shown.items() if mask and len(form) > _MIN_TELLING_CHARS]
        self._sorted = sorted(shown)
        self._starts = frozenset(form[0] for form in shown)
        self._longest = max(map(len, shown), default=0)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Any of the forms, the longest first."""
        by_length = sorted(self.shown, key=lambda form: (-len(form), form))
        return re.compile("|".join(map(re.escape, by_length)))

    def find_open_ends(self, text: str) -> list[int]:
        """The offsets of all suffixes of `text` that are proper prefixes of a form."""
        first = max(0, len(text) - self._longest + 1)
        return [at for at in range(first, len(text)) if text[at] in self._starts and self._begins(text[at:])]

    def _begins(self, piece: str) -> bool:
        at = bisect_left(self._sorted, piece)
        if at < len(self._sorted) and self._sorted[at] == piece:
            at += 1
        return at < len(self._sorted) and self._sorted[at].startswith(piece)


@dataclass(frozen=True, slots=True)
class _View:
    """A copy of a text, the forms to look for in it, and the way back to offsets of the text."""

    copy: str
    forms: _Forms
    to_original: Callable[[int, int], tuple[int, int]]
    encoded: bool = False

    def find(self, start: int) -> tuple[int, int, int, str | None] | None:
        """The first form from `start` of the copy on: the start behind it, its stretch of the text, what is shown."""
        if self.encoded:
            runs = _BASE64_RUN.finditer(self.copy, start)
            match = next(filter(None, (self.forms.pattern.search(self.copy, *run.span()) for run in runs)), None)
        else:
            match = self.forms.pattern.search(self.copy, start)
        return match and (match.start() + 1, *self.to_original(*match.span()), self.forms.shown[match[0]])


class SecretMask:
    """Replaces known secret values with placeholders, leftmost match first, then longest.

    SecretMask({"DB": "hunter2"}).mask("password Hunter2")     # 'password §§secret(DB)'

    Values are found in upper and lower case; longer ones also percent-encoded, inside base64 and wrapped over lines.
    Empty values are ignored. Placeholders of known keys are left alone, so masking twice changes nothing.
    """

    __slots__ = ("_base64", "_plain", "_spaced", "_unwrapped")

    def __init__(self, known: Mapping[str, str]) -> None:
        # When two keys share a value, the first key by name is shown.
        values = [(value, secret_placeholder(key)) for key, value in sorted(known.items(), reverse=True) if value]
        long = [(value, shown) for value, shown in values if len(value) >= _MIN_ENCODED_CHARS]
        kept: dict[str, str | None] = {_fold_case(secret_placeholder(key)): None for key in known}
        unwrapped = {_fold_case(_decode(value, "").text): shown for value, shown in long}
        unwrapped = {form: shown for form, shown in unwrapped.items() if len(form) >= _MIN_ENCODED_CHARS}
        self._plain = _Forms({**kept, **unwrapped, **{_fold_case(value): shown for value, shown in values}})
        self._unwrapped = _Forms(unwrapped)
        self._spaced = _Forms({_fold_case(value): shown for value, shown in long if " " in value.strip()})
        self._base64 = _Forms({core: shown for value, shown in long for core in _encode_base64(value)})

    def mask(self, text: str) -> str:
        """`text` with every known value replaced."""
        return self._mask(text, ())[0] if self._plain.shown else text

    def mask_passage(self, text: str) -> str:
        """A passage of a longer text with every known value replaced, including values cut by its edges."""
        if len(text) < _MIN_TELLING_CHARS or not self._plain.long:
            return self.mask(text)
        head, tail = (0, ""), (len(text), "")
        for view in self._views(text):
            for form, shown in view.forms.long:
                if len(view.copy) >= _MIN_TELLING_CHARS and view.copy in form:
                    return shown
                first, last = _find_cut_value(view.copy, form)
                if first:
                    head = max(head, (view.to_original(0, first)[1], shown))
                if last:
                    tail = min(tail, (view.to_original(len(view.copy) - last, len(view.copy))[0], shown))
        if head[0] > tail[0]:
            return head[1]
        return head[1] + self.mask(text[head[0] : tail[0]]) + tail[1]

    def mask_settled_part(self, text: str) -> tuple[str, str]:
        """The masked part of `text` that no continuation can change, and the unmasked rest."""
        if not self._plain.shown:
            return text, ""
        shown, done = self._mask(text, self._find_open_ends(text))
        return shown, text[done:]

    def _mask(self, text: str, open_ends: Sequence[int]) -> tuple[str, int]:
        """`text` masked up to the first open end that no masked value covers, and the offset of that end."""
        views = self._views(text)
        upcoming = [view.find(0) for view in views]
        pieces: list[str] = []
        done = 0
        while True:
            for at, view in enumerate(views):
                found = upcoming[at]
                while found and found[1] < done:
                    found = view.find(found[0])
                upcoming[at] = found
            until = next((end for end in open_ends if end >= done), len(text))
            match = min(filter(None, upcoming), key=lambda found: (found[1], -found[2]), default=None)
            if match is None or match[1] >= until:
                return "".join((*pieces, text[done:until])), until
            _, start, end, shown = match
            pieces += (text[done:start], text[start:end] if shown is None else shown)
            done = end

    def _views(self, text: str) -> Sequence[_View]:
        """The copies in which this text may show a value; the plain one is first."""
        views = [_View(_fold_case(text), self._plain, _keep_offsets)]
        wrapped = _ENCODED.search(text) is not None
        if wrapped and self._unwrapped.shown:
            decoded = _decode(text, "")
            views.append(_View(_fold_case(decoded.text), self._unwrapped, decoded.to_original))
            views.append(_View(decoded.text, self._base64, decoded.to_original, encoded=True))
            if self._spaced.shown:
                spaced = _decode(text, " ")
                views.append(_View(_fold_case(spaced.text), self._spaced, spaced.to_original))
        elif self._base64.shown:
            views.append(_View(text, self._base64, _keep_offsets, encoded=True))
        return [view for view in views if view.forms.shown]

    def _find_open_ends(self, text: str) -> list[int]:
        """The offsets from which `text` may continue as a value, through an unfinished escape or line break too."""
        views = [*self._views(text)]
        ends: list[int] = []
        unfinished = (
            _UNFINISHED.search(text, max(0, len(text) - _MAX_UNFINISHED_CHARS)) if self._unwrapped.shown else None
        )
        if unfinished and unfinished[0]:
            views += self._views(text[: unfinished.start()])
            ends += (unfinished.start() + at for at, char in enumerate(unfinished[0]) if char == "%")
        for view in views:
            ends += (view.to_original(at, len(view.copy))[0] for at in view.forms.find_open_ends(view.copy))
        return sorted(ends)


def _keep_offsets(start: int, end: int) -> tuple[int, int]:
    return start, end


def _find_cut_value(text: str, value: str) -> tuple[int, int]:
    """How many characters of `value` are cut off at the start of `text`, and how many at its end; 0 if too few."""
    if len(text) < _MIN_TELLING_CHARS:
        return 0, 0
    at = -1 if text.startswith(value) else value.find(text[:_MIN_TELLING_CHARS], 1)
    while at > 0 and not text.startswith(value[at:]):
        at = value.find(text[:_MIN_TELLING_CHARS], at + 1)
    end = -1 if text.endswith(value) else value.rfind(text[-_MIN_TELLING_CHARS:], 0, -1)
    while end >= 0 and not text.endswith(value[: end + _MIN_TELLING_CHARS]):
        end = value.rfind(text[-_MIN_TELLING_CHARS:], 0, end + _MIN_TELLING_CHARS - 1)
    return max(0, len(value) - at) if at > 0 else 0, end + _MIN_TELLING_CHARS if end >= 0 else 0


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
        known = dict(self._secrets.known_values()) if self._secrets else {}
        if known != self._made[0]:
            self._made = (known, SecretMask(known))
        return self._made[1]


def mask_candidate(candidate: Candidate, mask: SecretMask) -> Candidate:
    """The candidate with its text masked; facts computed from the unmasked text are dropped if it changed."""
    text = mask.mask_passage(candidate.text)
    if text == candidate.text:
        return candidate
    return replace(candidate, text=text, sentences=(), origins=(), weights=(), redactions=None, tokens={}, simhash=0)
