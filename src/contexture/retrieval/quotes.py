"""What is shown, compared with the stored text that it cites: redacted again, with gaps where an ellipsis stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contexture.errors import RedactionFailed
from contexture.pipeline.fence import label
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator
from contexture.pipeline.redact import apply, redact_text, scanned
from contexture.ports import Redactor
from contexture.retrieval.citations import Problem, Stored, cited_records, reason_of
from contexture.retrieval.prepare import clipped
from contexture.types import Citation, Record, Scope, Span

_GAP = re.compile(r"(?:^|\s)…(?=\s|$)")
_PLACEHOLDER = re.compile(r"<([A-Z][A-Z0-9_]{0,63})_[0-9]{1,9}>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    """A text that is shown, what it is called, and where it says it comes from; None where only the place counts.

    `file` is the file that it names as its source, None where it names none.
    """

    name: str
    citations: tuple[Citation, ...]
    text: str | None = None
    file: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class QuoteCheck:
    """Checks quotes against a store.

    A quote holds when each of its citations resolves and its text, piece by piece between ellipses, stands in what
    they name, in order, once that is masked and redacted as it was for the quote; the file that it names is theirs.
    Placeholders are compared without their numbers, and runs of white space as one blank.
    """

    stored: Stored
    redactor: Redactor
    operator: Operator
    mask: Mask

    async def problems(self, scope: Scope, quotes: Sequence[Quote]) -> list[Problem]:
        """Every citation that does not hold, once."""
        everything = [citation for quote in quotes for citation in quote.citations]
        records = await cited_records(self.stored, scope, everything)
        scans = _Scans(self.redactor)
        found = [problem for quote in quotes for problem in self._of(quote, records, scans)]
        return list({(problem.citation, problem.reason): problem for problem in found}.values())

    def _of(self, quote: Quote, records: Mapping[tuple[str, str], Record], scans: _Scans) -> list[Problem]:
        read = [(each, records.get((each.collection, each.record_id))) for each in quote.citations]
        broken = [Problem(citation=each, reason=why) for each, record in read if (why := reason_of(each, record))]
        if broken or quote.text is None or not read:
            return broken
        cited = [(each, record) for each, record in read if record is not None]
        try:
            there = "\n".join(self._shown(each, record, scans) for each, record in cited)
            strange = [each for each, record in cited if not self._is_file(quote.file, record)]
        except RedactionFailed as failure:
            return [Problem(citation=read[0][0], reason=f"{quote.name} cannot be compared: {failure}")]
        if strange:
            return [Problem(citation=strange[0], reason=f"{quote.name} is not of the file {quote.file!r}")]
        missing = _missing(quote.text, there)
        if missing is None:
            return []
        reason = f"{quote.name} shows {missing[:80]!r}, which does not stand at the place it cites"
        return [Problem(citation=read[0][0], reason=reason)]

    def _is_file(self, named: str | None, record: Record) -> bool:
        """Whether a record is of the file that is named; the name may be shown as it stands, or as a label."""
        if named is None:
            return True
        name = self.mask.mask(record.source)
        forms = (name, self.mask.mask(label(name)))
        shown = [redact_text(form, self.redactor, self.operator, lang=record.lang).text for form in forms]
        return _plain(named) in {_plain(form) for form in (*shown, label(shown[0]))}

    def _shown(self, citation: Citation, record: Record, scans: _Scans) -> str:
        """What a citation names, as it may be shown."""
        raw = record.text[citation.start : citation.end]
        piece = self.mask.piece(raw)
        if piece != raw:  # places found in a text that held a secret no longer hold
            return redact_text(piece, self.redactor, self.operator, lang=record.lang).text
        return apply(raw, clipped(scans(record), citation.start, citation.end), self.operator).text


class _Scans:
    """What must not be shown of records, each scanned once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._seen: dict[str, Sequence[Span]] = {}

    def __call__(self, record: Record) -> Sequence[Span]:
        if record.hash not in self._seen:
            self._seen[record.hash] = scanned(record.text, self._redactor, lang=record.lang)
        return self._seen[record.hash]


def _missing(shown: str, there: str) -> str | None:
    """The first piece of a shown text that is not there, in order; None when all are."""
    place, at = _plain(there), 0
    for piece in map(_plain, _GAP.split(shown)):
        found = place.find(piece, at)
        if found < 0:
            return piece
        at = found + len(piece)
    return None


def _plain(text: str) -> str:
    return " ".join(_PLACEHOLDER.sub(r"<\1>", text).split())
