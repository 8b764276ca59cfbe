"""Pages that were found, as candidates for a context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from contexture.builders.research.variants import Offsets, pieces_of
from contexture.ledger import Trace
from contexture.pages.values import FoundPage, StoredPage
from contexture.pipeline.fence import label
from contexture.pipeline.known import NOTHING, masked
from contexture.pipeline.mask import Mask
from contexture.retrieval.prepare import clipped
from contexture.types import Candidate, Citation, Filter, Scope

COLLECTION = "pages"
SECTION = "pages"
TEXT = "text"
VISUAL = "visual"


class Pages(Protocol):
    """Finds pages and reads them, as `pages.store.PageStore` does."""

    async def find(
        self,
        scope: Scope,
        question: str,
        *,
        k: int,
        text: bool,
        visual: bool,
        where: Filter | None = None,
        trace: Trace,
    ) -> Sequence[FoundPage]:
        """The best `k` pages by their words, their looks, or both, best first."""
        ...

    async def pages(self, scope: Scope, wanted: Sequence[tuple[str, int]]) -> Sequence[StoredPage]:
        """Those of these pages that exist and that the scope may read, in one go."""
        ...


def page_key(doc_id: str, page: int) -> str:
    """The id under which a page is stored and cited."""
    return f"{doc_id}:{page}"


def candidate_of(
    page: StoredPage, found: FoundPage | None = None, mask: Mask = NOTHING, *, rules: str = ""
) -> Candidate:
    """A page as a candidate, known secrets masked, not yet redacted; what is stored of `rules` need not be looked for.

    What was found of it says how well each of its sentences answers the question; without that it is not to be
    shortened, and its sentences are not looked for.
    """
    key = page_key(page.doc_id, page.page)
    start, end = _visible(page.text)
    text = page.text[start:end]
    sentences = _sentences(page, start, text) if found else ()
    name = mask.mask(page.filename)
    known = page.redactions if page.rules == rules else None
    raw = Candidate(
        id=key,
        key=key,
        text=text,
        section=SECTION,
        title=name,
        label=mask.mask(label(name)),
        kind="page",
        lang=page.lang,
        time=page.timestamp,
        score=found.score if found else 0.0,
        signals=_signals(found),
        sentences=sentences,
        origins=tuple((start + first, start + last) for first, last in sentences),
        weights=_weights(sentences, start, found),
        redactions=None if known is None else clipped(known, start, end),
        tokens=page.tokens if len(text) == len(page.text) else {},
        simhash=page.simhash,
        citation=Citation(
            collection=COLLECTION, record_id=key, title=name, start=start, end=end, hash=page.hash, page=page.page
        ),
    )
    return masked(raw, mask)


def _visible(text: str) -> tuple[int, int]:
    """Where a text begins and ends without the white space around it."""
    return len(text) - len(text.lstrip()) if text.strip() else 0, len(text.rstrip())


def _sentences(page: StoredPage, start: int, text: str) -> Offsets:
    """The sentences of a page's visible text: those that are stored, or found now where none are."""
    if not page.sentences:
        return pieces_of(text)
    return tuple((first - start, last - start) for first, last in page.sentences)


def _signals(found: FoundPage | None) -> dict[str, float]:
    told = {TEXT: found.text_score, VISUAL: found.visual_score} if found else {}
    return {name: score for name, score in told.items() if score is not None}


def _weights(sentences: Sequence[tuple[int, int]], start: int, found: FoundPage | None) -> tuple[float, ...]:
    """The score of the passage that a sentence lies in, where that passage was found."""
    known = [
        (each.citation.start - start, each.citation.end - start, each.score)
        for each in (found.candidates if found else ())
        if each.citation is not None
    ]
    return tuple(
        max((score for begin, end, score in known if first < end and begin < last), default=0.0)
        for first, last in sentences
    )
