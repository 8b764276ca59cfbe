"""Resolves citations to the records they name, and verifies quotes against the cited text.

The stored text is masked and redacted again before it is compared with a quote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from contexture.errors import RedactionFailed
from contexture.pipeline.fence import safe_label
from contexture.pipeline.masking import SecretMask
from contexture.pipeline.redaction import LITERAL_LABEL, RedactionOperator, apply_redactions, redact_text, scan_text
from contexture.ports import Redactor
from contexture.retrieval.prepare import clip_spans
from contexture.types import Citation, Collection, Record, Scope, Span


class CitedRecords(Protocol):
    """Reads records by collection, as every `Index` does."""

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant."""
        ...

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those of `ids` that exist and that the scope may see."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CitationProblem:
    """A citation that does not resolve, and why."""

    citation: Citation
    reason: str


async def verify_citations(index: CitedRecords, scope: Scope, citations: Sequence[Citation]) -> list[CitationProblem]:
    """The citations that no longer resolve to the text they were made from, as `scope` sees the store now.

    A deleted record and one that the scope may not see give the same reason.
    """
    found = await load_cited_records(index, scope, citations)
    checked = (
        (citation, citation_error(citation, found.get((citation.collection, citation.record_id))))
        for citation in citations
    )
    return [CitationProblem(citation=citation, reason=reason) for citation, reason in checked if reason]


async def resolve_citation(index: CitedRecords, scope: Scope, citation: Citation) -> str | None:
    """The stored text that a citation names; None when it does not resolve."""
    found = await load_cited_records(index, scope, [citation])
    record = found.get((citation.collection, citation.record_id))
    return None if record is None or citation_error(citation, record) else record.text[citation.start : citation.end]


async def load_cited_records(
    index: CitedRecords, scope: Scope, citations: Sequence[Citation]
) -> dict[tuple[str, str], Record]:
    """The records that citations name, by collection and id, each collection read once."""
    known = {collection.name for collection in await index.collections(scope)}
    wanted: dict[str, dict[str, None]] = {}
    for citation in citations:
        if citation.collection in known:
            wanted.setdefault(citation.collection, {})[citation.record_id] = None
    return {
        (collection, record.id): record
        for collection, ids in wanted.items()
        for record in await index.get(scope, collection, list(ids))
    }


def citation_error(citation: Citation, record: Record | None) -> str:
    """Why a citation does not resolve to this record; empty when it does."""
    if record is None:
        return f"no record {citation.record_id!r} can be read in {citation.collection!r}"
    if record.hash != citation.hash:
        return f"record {citation.record_id!r} has changed since it was cited"
    if not 0 <= citation.start < citation.end <= len(record.text):
        return f"characters {citation.start} to {citation.end} are not in record {citation.record_id!r}"
    return ""


_ELLIPSIS_GAP = re.compile(r"(?:^|\s)…(?=\s|$)")
_PLACEHOLDER = re.compile(r"<([A-Z][A-Z0-9_]{0,63})_[0-9]{1,9}>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    """A quoted text with a name and its citations; `text` is None when only the citations are checked.

    `file` is the file named as its source, None when no file is named.
    """

    name: str
    citations: tuple[Citation, ...]
    text: str | None = None
    file: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class QuoteChecker:
    """Verifies quotes against a store.

    A quote is valid when each of its citations resolves, the pieces of its text between ellipses occur in order in the
    cited text after masking and redaction, and the named file is that of the cited records. Placeholders are compared
    without their numbers, and runs of white space as one space.
    """

    stored: CitedRecords
    redactor: Redactor
    operator: RedactionOperator
    mask: SecretMask

    async def find_problems(self, scope: Scope, quotes: Sequence[Quote]) -> list[CitationProblem]:
        """The problems of all quotes, without duplicates."""
        everything = [citation for quote in quotes for citation in quote.citations]
        records = await load_cited_records(self.stored, scope, everything)
        scans = _RecordScans(self.redactor)
        found = [problem for quote in quotes for problem in self._quote_problems(quote, records, scans)]
        return list({(problem.citation, problem.reason): problem for problem in found}.values())

    def _quote_problems(
        self, quote: Quote, records: Mapping[tuple[str, str], Record], scans: _RecordScans
    ) -> list[CitationProblem]:
        read = [(each, records.get((each.collection, each.record_id))) for each in quote.citations]
        broken = [
            CitationProblem(citation=each, reason=why) for each, record in read if (why := citation_error(each, record))
        ]
        if broken or quote.text is None or not read:
            return broken
        cited = [(each, record) for each, record in read if record is not None]
        try:
            there = "\n".join(self._text_as_shown(each, record, scans) for each, record in cited)
            strange = [each for each, record in cited if not self._is_file(quote.file, record)]
        except RedactionFailed as failure:
            return [CitationProblem(citation=read[0][0], reason=f"{quote.name} cannot be compared: {failure}")]
        if strange:
            return [CitationProblem(citation=strange[0], reason=f"{quote.name} is not from the file {quote.file!r}")]
        missing = _first_missing_piece(quote.text, there)
        if missing is None:
            return []
        reason = f"{quote.name} shows {missing[:80]!r}, which is not in the cited text"
        return [CitationProblem(citation=read[0][0], reason=reason)]

    def _is_file(self, named: str | None, record: Record) -> bool:
        """Whether a record comes from the named file; the name may be given as stored or as a safe label."""
        if named is None:
            return True
        name = self.mask.mask(record.source)
        forms = (name, self.mask.mask(safe_label(name)))
        shown = [redact_text(form, self.redactor, self.operator, lang=record.lang).text for form in forms]
        return _normalise_text(named) in {_normalise_text(form) for form in (*shown, safe_label(shown[0]))}

    def _text_as_shown(self, citation: Citation, record: Record, scans: _RecordScans) -> str:
        """The cited text, masked and redacted."""
        raw = record.text[citation.start : citation.end]
        piece = self.mask.mask_passage(raw)
        if piece != raw:  # masking moved the text, so spans of the raw text no longer apply
            return redact_text(piece, self.redactor, self.operator, lang=record.lang).text
        return apply_redactions(raw, clip_spans(scans(record), citation.start, citation.end), self.operator).text


class _RecordScans:
    """Redaction spans of records, each scanned once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._seen: dict[str, Sequence[Span]] = {}

    def __call__(self, record: Record) -> Sequence[Span]:
        if record.hash not in self._seen:
            self._seen[record.hash] = scan_text(record.text, self._redactor, lang=record.lang)
        return self._seen[record.hash]


def _first_missing_piece(shown: str, there: str) -> str | None:
    """The first piece of a quoted text that does not occur in `there`, in order; None when all do."""
    # A placeholder written in the record is a literal in prompts that gave it to a value, and itself in others.
    named = all(f"<{LITERAL_LABEL}_" not in text for text in (shown, there))
    place, at = _normalise_text(there, named=named), 0
    for part in _ELLIPSIS_GAP.split(shown):
        piece = _normalise_text(part, named=named)
        found = place.find(piece, at)
        if found < 0:
            return piece
        at = found + len(piece)
    return None


def _normalise_text(text: str, *, named: bool = True) -> str:
    return " ".join(_PLACEHOLDER.sub(r"<\1>" if named else "<>", text).split())
