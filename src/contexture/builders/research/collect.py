"""Found pages as candidates.

The `PageFinder` port, and a stored page with sentences, signals, citation and masked secrets.
"""

from __future__ import annotations

from collections.abc import Sequence

from contexture.builders.research.render import Offsets, split_sentences
from contexture.pages.values import FoundPage, StoredPage
from contexture.pipeline.fence import safe_label
from contexture.pipeline.masking import EMPTY_MASK, SecretMask, mask_candidate
from contexture.retrieval.prepare import clip_spans
from contexture.types import Candidate, Citation

PAGES_COLLECTION = "pages"
PAGES_SECTION = "pages"
TEXT_SIGNAL = "text"
VISUAL_SIGNAL = "visual"


def page_key(doc_id: str, page: int) -> str:
    """The id under which a page is stored and cited."""
    return f"{doc_id}:{page}"


def page_to_candidate(
    page: StoredPage, found: FoundPage | None = None, mask: SecretMask = EMPTY_MASK, *, rules: str = ""
) -> Candidate:
    """A stored page as a candidate with known secrets masked; not yet redacted.

    Stored spans are used only if their rules match. Without `found` it has no sentences and cannot be shortened.
    """
    key = page_key(page.doc_id, page.page)
    start, end = _visible_range(page.text)
    text = page.text[start:end]
    sentences = _page_sentences(page, start, text) if found else ()
    name = mask.mask(page.filename)
    known = page.redactions if page.rules == rules else None
    raw = Candidate(
        id=key,
        key=key,
        text=text,
        section=PAGES_SECTION,
        title=name,
        label=mask.mask(safe_label(name)),
        kind="page",
        lang=page.lang,
        time=page.timestamp,
        score=found.score if found else 0.0,
        signals=_score_signals(found),
        sentences=sentences,
        origins=tuple((start + first, start + last) for first, last in sentences),
        weights=_lift_table_headers(_sentence_weights(sentences, start, found), sentences, text),
        redactions=None if known is None else clip_spans(known, start, end),
        tokens=page.tokens if len(text) == len(page.text) else {},
        simhash=page.simhash,
        citation=Citation(
            collection=PAGES_COLLECTION, record_id=key, title=name, start=start, end=end, hash=page.hash, page=page.page
        ),
    )
    return mask_candidate(raw, mask)


def _visible_range(text: str) -> tuple[int, int]:
    """Start and end of a text without surrounding white space."""
    return len(text) - len(text.lstrip()) if text.strip() else 0, len(text.rstrip())


def _page_sentences(page: StoredPage, start: int, text: str) -> Offsets:
    """Sentence offsets in a page's visible text: the stored ones, or computed when none are stored."""
    if not page.sentences:
        return split_sentences(text)
    return tuple((first - start, last - start) for first, last in page.sentences)


def _score_signals(found: FoundPage | None) -> dict[str, float]:
    signals = {TEXT_SIGNAL: found.text_score, VISUAL_SIGNAL: found.visual_score} if found else {}
    return {name: score for name, score in signals.items() if score is not None}


def _lift_table_headers(weights: Sequence[float], sentences: Sequence[tuple[int, int]], text: str) -> tuple[float, ...]:
    """The weights, with the header of each table as heavy as its heaviest row, so that no row is shown without it."""
    lifted = list(weights)
    head = -1
    for at, (start, _) in enumerate(sentences):
        if not text.startswith("|", start):
            head = -1
            continue
        if head < 0:
            head = at
        for line in (head, head + 1):  # the header, and the rule below it
            if line <= at and (line == head or text.startswith("| ---", sentences[line][0])):
                lifted[line] = max(lifted[line], lifted[at])
    return tuple(lifted)


def _sentence_weights(sentences: Sequence[tuple[int, int]], start: int, found: FoundPage | None) -> tuple[float, ...]:
    """For each sentence the best score of the found passages that overlap it; 0 without one."""
    known = [
        (each.citation.start - start, each.citation.end - start, each.score)
        for each in (found.candidates if found else ())
        if each.citation is not None
    ]
    return tuple(
        max((score for begin, end, score in known if first < end and begin < last), default=0.0)
        for first, last in sentences
    )
