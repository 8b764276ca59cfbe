"""The result of a search, and the conversion of found passages and stored records to candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from typing_extensions import TypedDict

from contexture.ledger import Degradation
from contexture.pipeline.fence import safe_label
from contexture.pipeline.masking import EMPTY_MASK, SecretMask, mask_candidate
from contexture.results import JsonResult, Timestamp
from contexture.retrieval.search import FoundPassage
from contexture.types import Candidate, Citation, Record


class PassageJson(TypedDict):
    """A passage that a search found."""

    id: str
    title: str
    text: str
    score: float
    signals: Mapping[str, float]
    lang: str
    source: str
    kind: str
    time: Timestamp | None
    citation: Citation | None


class SearchResultJson(TypedDict):
    """What a search found, best first."""

    query: str
    results: list[PassageJson]
    degradations: tuple[Degradation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult(JsonResult):
    """Passages, best first, redacted, and the degradations; `question` is the query with known secrets masked."""

    question: str
    found: tuple[Candidate, ...]
    degradations: tuple[Degradation, ...]

    def first(self, limit: int) -> SearchResult:
        """The same result with at most `limit` passages."""
        return replace(self, found=self.found[:limit])

    def json_form(self) -> SearchResultJson:
        """The passages with their signals."""
        rows = [_passage_to_json(each) for each in self.found]
        return {"query": self.question, "results": rows, "degradations": self.degradations}


def _passage_to_json(candidate: Candidate) -> PassageJson:
    return {
        "id": candidate.id,
        "title": candidate.title,
        "text": candidate.text,
        "score": candidate.score,
        "signals": candidate.signals,
        "lang": candidate.lang,
        "source": candidate.source,
        "kind": candidate.kind,
        "time": candidate.time,
        "citation": candidate.citation,
    }


def candidate_from_passage(
    found: FoundPassage, collection: str, rules: str, mask: SecretMask = EMPTY_MASK
) -> Candidate:
    """A search result as a candidate, known secrets masked in everything but its id.

    Stored redaction spans are dropped when they were made by other rules than `rules`, or when masking changed the
    text.
    """
    hit, record = found.hit, found.hit.record
    trusted = hit.rules == rules
    title = mask.mask(record.title)
    raw = Candidate(
        id=f"{record.id}#{hit.ordinal:05d}",
        key=f"{record.id}#{hit.ordinal:05d}",
        text=hit.text,
        title=title,
        label=_record_label(record, mask),
        kind=record.kind,
        lang=record.lang,
        source=mask.mask(record.source),
        time=record.time,
        score=found.score,
        signals=found.signals,
        sentences=hit.passage.sentences,
        origins=tuple((hit.passage.start + a, hit.passage.start + b) for a, b in hit.passage.sentences),
        redactions=hit.passage.redactions if trusted else None,
        title_redactions=hit.title_redactions if trusted and title == record.title else None,
        tokens=hit.passage.tokens,
        simhash=hit.passage.simhash,
        citation=Citation(
            collection=collection,
            record_id=record.id,
            title=title,
            start=hit.passage.start,
            end=hit.passage.end,
            hash=hit.hash,
        ),
    )
    return mask_candidate(raw, mask)


def candidate_from_record(record: Record, collection: str, mask: SecretMask = EMPTY_MASK) -> Candidate:
    """A whole stored record as one candidate, known secrets masked; it is not redacted yet."""
    raw = Candidate(
        id=record.id,
        key=record.id,
        text=record.text,
        title=mask.mask(record.title),
        kind=record.kind,
        lang=record.lang,
        source=mask.mask(record.source),
        time=record.time,
        citation=Citation(
            collection=collection,
            record_id=record.id,
            title=mask.mask(record.title),
            start=0,
            end=len(record.text),
            hash=record.hash,
        ),
    )
    return mask_candidate(raw, mask)


def _record_label(record: Record, mask: SecretMask) -> str:
    """The label of a record whose title cannot be shown unchanged; "" if it can. Redaction scans the label as is."""
    shown = _masked_label(record.title, mask)
    if shown and shown == record.title:
        return ""
    return shown or _masked_label(record.source, mask) or _masked_label(record.id, mask)


def _masked_label(text: str, mask: SecretMask) -> str:
    """A safe label without secrets; masked before shortening, which may cut a secret, and again after normalising."""
    return mask.mask(safe_label(mask.mask(text)))
