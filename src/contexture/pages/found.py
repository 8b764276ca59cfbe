"""What two searches found, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from contexture.documents import Box
from contexture.pages.values import FoundPage
from contexture.retrieval.candidates import candidate_of
from contexture.retrieval.search import Found
from contexture.types import Candidate

Place = tuple[str, int]
"""A page: its document's id and its number."""


class Seen(Protocol):
    """A page found by its looks, its score from 0 to 1, and the region that answers best."""

    @property
    def doc_id(self) -> str:
        """The document."""
        ...

    @property
    def page(self) -> int:
        """The page's number."""
        ...

    @property
    def score(self) -> float:
        """How well it matches, from 0 to 1."""
        ...

    @property
    def box(self) -> Box | None:
        """The region that answers best."""
        ...


def read_pages(found: Iterable[Found], collection: str, rules: str) -> dict[Place, FoundPage]:
    """Passages, best first, as the pages they stand on; a page is as good as its best passage."""
    pages: dict[Place, list[Found]] = {}
    for each in found:
        told = each.hit.record.payload
        pages.setdefault((told["doc_id"], told["page"]), []).append(each)
    return {place: _read_page(place, inside, collection, rules) for place, inside in pages.items()}


def joined(
    read: Mapping[Place, FoundPage], seen: Sequence[Seen], names: Mapping[Place, str], k: int
) -> tuple[FoundPage, ...]:
    """The best `k` pages of both searches, ties by document and page; `names` has the file of every page seen."""
    looks = {(each.doc_id, each.page): each for each in seen if (each.doc_id, each.page) in names}
    pages = [_joined(read.get(place), looks.get(place), place, names) for place in {**read, **looks}]
    return tuple(sorted(pages, key=lambda page: (-page.score, page.doc_id, page.page))[:k])


def _read_page(place: Place, found: Sequence[Found], collection: str, rules: str) -> FoundPage:
    score = _share(max(each.score for each in found))
    return FoundPage(
        doc_id=place[0],
        page=place[1],
        filename=found[0].hit.record.payload["filename"],
        score=score,
        text_score=score,
        candidates=tuple(_paged(candidate_of(each, collection, rules), place[1]) for each in found),
    )


def _joined(read: FoundPage | None, seen: Seen | None, place: Place, names: Mapping[Place, str]) -> FoundPage:
    text = None if read is None else read.text_score
    visual = None if seen is None else _share(seen.score)
    return FoundPage(
        doc_id=place[0],
        page=place[1],
        filename=read.filename if read else names[place],
        score=max(score for score in (text, visual) if score is not None),
        text_score=text,
        visual_score=visual,
        candidates=read.candidates if read else (),
        box=None if seen is None else seen.box,
    )


def _paged(candidate: Candidate, page: int) -> Candidate:
    cited = candidate.citation
    return candidate if cited is None else replace(candidate, citation=replace(cited, page=page))


def _share(score: float) -> float:
    return min(max(float(score), 0.0), 1.0)
