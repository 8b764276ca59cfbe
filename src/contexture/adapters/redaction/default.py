"""`default_redactor`, which builds the redactor for the chosen entity types.

Also `CompositeRedactor`, which combines several redactors, and `NoopRedactor`, which finds nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

from contexture.adapters.redaction._credentials import CREDENTIAL_RULES
from contexture.adapters.redaction._documents import DOCUMENT_RULES
from contexture.adapters.redaction._personal_data import COMMON_RULES, PHONE_RULES, RUSSIAN_RULES, URL
from contexture.adapters.redaction._rules import RuleRedactor, fingerprint, merge_overlapping_spans
from contexture.errors import InvalidRequest
from contexture.ports import Redactor
from contexture.text.mapped import MappedText, fold_text
from contexture.types import Span

_VERSION = "1"
_OPAQUE = "<>"  # begins and ends as every replacement does
# What the operators write: `<EMAIL_1>`, `<EMAIL:5a1e0c77b2d4>`.
_REPLACEMENT = re.compile(r"<[A-Z][A-Z0-9_]{0,63}(?:_[0-9]{1,9}|:[0-9a-f]{12})>")
# Without one of these nothing is left that depends on what stands around it.
_NUMBER_LEFT = re.compile(r"[0-9](?:[^\w\n]{0,3}[0-9]){5}|[0-9]\.[0-9]{1,3}\.[0-9]|[0-9a-fA-F]:[0-9a-fA-F:]|@")
_MAX_ROUNDS = 4
_CHARS_AROUND = 160  # of what is scanned again: more than a context word and a number
_CHARS_AT_CUT = 32  # a match so close to a cut may be part of something longer

_NUMBER_BREAK = re.compile(r"\n[ \t]{0,8}(?=[0-9A-Z(]|-[0-9])")
_EMAIL_BREAK = re.compile(r"@(?:[\w.\-]{0,80}+(?<=[.\-]))?[ \t]{0,4}(\r?\n[ \t]{0,8})(?=\w)|(\n[ \t]{0,8})(?=[@.]\w)")
_CHARS_OF_NUMBER = 40
_NUMBER_BEFORE = re.compile(r"[0-9A-Z+(][0-9A-Z ().\-]{0,38}+(?<=[0-9A-Z).\-])\Z")
_NUMBER_AFTER = re.compile(r"[0-9A-Z ().\-]{1,40}+")
_MIN_DIGITS = 7
_TABLE_BREAKS = 2  # in so many lines of numbers in a row, none continues the one before it
_INTERNATIONAL_DIGITS = 10
_GLUE = "@.-"
_CHECKED = frozenset({"CARD", "IBAN"})  # a check digit tells whether the next line continues the number
_NOT_SPLIT = frozenset({"SECRET", "URL"})


class NormalizedRedactor:
    """A redactor that also finds values in unusual characters and values split by one line break.

    NormalizedRedactor(RuleRedactor([SSN])).scan("078 05-1120", "")    # [Span(0, 11, "SSN")]
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._rules = f"normalized-{fingerprint((_VERSION, redactor.rules))}"

    @property
    def rules(self) -> str:
        """Fingerprint that changes with the wrapped rules and with the way texts are normalised."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap; text that shows the replacements of these spans has no further ones."""
        written = _find_replacements(text)
        found = self._scan_hidden(text, written, lang)
        fresh = found
        for _ in range(_MAX_ROUNDS):
            if not fresh:
                break
            found = merge_overlapping_spans((*found, *fresh))
            fresh = self._scan_around(text, fresh, [*written, *found], lang)
        return found

    def _scan_hidden(self, text: str, hidden: Sequence[Span], lang: str) -> list[Span]:
        """What is found in the text with the hidden spans made opaque."""
        if not hidden:
            return self._scan_copies(text, lang)
        copy = MappedText(text, [(span.start, span.end, _OPAQUE) for span in hidden])
        return _map_back(self._scan_copies(copy.text, lang), copy) if _NUMBER_LEFT.search(copy.text) else []

    def _scan_around(self, text: str, fresh: Sequence[Span], hidden: Iterable[Span], lang: str) -> list[Span]:
        """What is found close to the fresh spans when all hidden ones are opaque."""
        covered = merge_overlapping_spans(hidden)
        found: list[Span] = []
        for start, end in _join_windows(((span.start, span.end) for span in fresh), len(text)):
            inside = [
                Span(max(span.start, start) - start, min(span.end, end) - start, span.label)
                for span in covered
                if span.start < end and start < span.end
            ]
            found += _keep_inner(self._scan_hidden(text[start:end], inside, lang), start, end, len(text))
        return found

    def _scan_copies(self, text: str, lang: str) -> list[Span]:
        """What is found in the text, in its folded copy close to what was folded, and across line breaks."""
        found = list(self._redactor.scan(text, lang))
        folded = fold_text(text)
        if folded is None:
            return [*found, *self._scan_breaks(text, found, lang)] if "\n" in text else found
        copy, again = folded.text, list[Span]()
        for start, end in _join_windows(folded.replacements, len(copy)):
            again += _keep_inner(self._redactor.scan(copy[start:end], lang), start, end, len(copy))
        again += self._scan_breaks(copy, again, lang)
        return merge_overlapping_spans(chain(found, _map_back(again, folded)))

    def _scan_breaks(self, text: str, found: Sequence[Span], lang: str) -> Iterator[Span]:
        """Values that one line break splits; a value that is complete without the next line is not continued."""
        complete = {edge for span in found if _is_complete(text, span) for edge in (span.start, span.end)}
        for start, end in _find_breaks(text):
            if not complete.isdisjoint((start, end, start - (text[start - 1] == "."))):
                continue
            glued = text[start - 1] in _GLUE or text[end] in _GLUE
            first = max(0, start - _CHARS_AROUND)
            joined = MappedText(text[first : end + _CHARS_AROUND], [(start - first, end - first, "" if glued else " ")])
            for span in _map_back(self._redactor.scan(joined.text, lang), joined, first):
                if span.start < start and end < span.end and span.label not in _NOT_SPLIT:
                    yield span


def _is_complete(text: str, span: Span) -> bool:
    """Whether a value needs no next line; the check digit of a card or IBAN decides, and a country code needs more."""
    if span.label in _CHECKED:
        return False
    return text[span.start] != "+" or sum(map(str.isdigit, text[span.start : span.end])) >= _INTERNATIONAL_DIGITS


def _find_replacements(text: str) -> list[Span]:
    if "<" not in text:
        return []
    return [Span(match.start(), match.end(), "") for match in _REPLACEMENT.finditer(text)]


def _map_back(spans: Iterable[Span], copy: MappedText, offset: int = 0) -> list[Span]:
    """Spans of a copy as spans of its original, moved by `offset`."""
    mapped: list[Span] = []
    for span in spans:
        start, end = copy.to_original(span.start, span.end)
        mapped.append(Span(start + offset, end + offset, span.label, span.score))
    return mapped


def _join_windows(places: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """The stretches around some places of a text; those that meet are one."""
    windows: list[tuple[int, int]] = []
    for first, last in places:
        start, end = max(0, first - _CHARS_AROUND), min(length, last + _CHARS_AROUND)
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(end, windows[-1][1]))
        else:
            windows.append((start, end))
    return windows


def _keep_inner(spans: Iterable[Span], start: int, end: int, length: int) -> Iterator[Span]:
    """Spans of the window from `start` to `end` as spans of the text, without those close to where it was cut."""
    first = start + _CHARS_AT_CUT if start else 0
    last = end - _CHARS_AT_CUT if end < length else length
    for span in spans:
        if first <= span.start + start and span.end + start <= last:
            yield Span(span.start + start, span.end + start, span.label, span.score)


def _find_breaks(text: str) -> Iterator[tuple[int, int]]:
    """Line breaks, with the blanks around them, at which a number or an address may be split."""
    breaks = [
        (start, end)
        for match in _NUMBER_BREAK.finditer(text)
        for start, end in (_strip_break(text, match.start(), match.end()),)
        if _may_split_number(text, start, end)
    ]
    for at, (start, end) in enumerate(breaks):
        near = breaks[max(0, at - 2) : at + 3]
        if sum(text.count("\n", left[1], right[0]) == 0 for left, right in pairwise(near)) < _TABLE_BREAKS:
            yield start, end
    if "@" in text:
        for match in _EMAIL_BREAK.finditer(text):
            start, end = _strip_break(text, *match.span(match.lastindex or 0))
            if start:
                yield start, end


def _may_split_number(text: str, start: int, end: int) -> bool:
    """Whether the characters of a number stand on both sides of the break, and digits enough."""
    before = _NUMBER_BEFORE.search(text, max(0, start - _CHARS_OF_NUMBER), start)
    after = _NUMBER_AFTER.match(text, end, end + _CHARS_OF_NUMBER)
    if before is None or after is None:
        return False
    digits = sum(map(str.isdigit, before[0])), sum(map(str.isdigit, after[0]))
    return min(digits) > 0 and sum(digits) >= _MIN_DIGITS


def _strip_break(text: str, start: int, end: int) -> tuple[int, int]:
    """The break with the blanks before it."""
    while start and text[start - 1] in " \t\r":
        start -= 1
    return start, end


NER_ENTITIES = ("PERSON", "LOCATION", "ADDRESS")
_PERSONAL_DATA_RULES = (*COMMON_RULES, *PHONE_RULES, *RUSSIAN_RULES, *DOCUMENT_RULES)
DEFAULT_ENTITIES = tuple(dict.fromkeys(item.label for item in _PERSONAL_DATA_RULES))
ENTITIES = (*DEFAULT_ENTITIES, "URL", *NER_ENTITIES)


def default_redactor(*, entities: Sequence[str] | None = None, ner: bool = False, secrets: bool = True) -> Redactor:
    """A redactor for these entity types; None means `DEFAULT_ENTITIES`, to which `ner` adds names and places.

    default_redactor()                                # personal data and credentials
    default_redactor(entities=("EMAIL", "PHONE"))     # only these, and credentials
    default_redactor(ner=True)                        # names and places too; needs contexture-ai[ner]
    """
    chosen = _chosen_labels(entities, ner=ner)
    rules = [rule for rule in (*_PERSONAL_DATA_RULES, URL) if rule.label in chosen]
    parts: list[Redactor] = [NormalizedRedactor(RuleRedactor([*rules, *(CREDENTIAL_RULES if secrets else ())]))]
    names = [label for label in NER_ENTITIES if label in chosen]
    if names:
        from contexture.adapters.redaction._ner import NerRedactor

        parts.append(NerRedactor(names))
    return CompositeRedactor(parts)


def _chosen_labels(entities: Sequence[str] | None, *, ner: bool) -> frozenset[str]:
    if entities is None:
        return frozenset((*DEFAULT_ENTITIES, *(NER_ENTITIES if ner else ())))
    unknown = sorted(set(entities) - set(ENTITIES))
    if unknown:
        raise InvalidRequest(f"no redaction rule finds {unknown[0]!r}; choose from {', '.join(ENTITIES)}")
    if not ner and not set(entities).isdisjoint(NER_ENTITIES):
        raise InvalidRequest(f"{', '.join(NER_ENTITIES)} need named entity recognition: switch `ner` on")
    return frozenset(entities)


class CompositeRedactor:
    """Combines several redactors; overlapping spans are merged and labelled after the longest."""

    def __init__(self, parts: Sequence[Redactor]) -> None:
        self._parts = tuple(parts)
        self._rules = f"all-{fingerprint(part.rules for part in self._parts)}"

    @property
    def rules(self) -> str:
        """Fingerprint that changes whenever the rules of a part do."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap."""
        return merge_overlapping_spans(span for part in self._parts for span in part.scan(text, lang))


class NoopRedactor:
    """Finds nothing: for text that is known to contain no personal data and no secrets."""

    @property
    def rules(self) -> str:
        """Constant fingerprint."""
        return "none"

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Return no spans."""
        del text, lang
        return ()
