"""Pages without an index: what is found, and how well, is written down beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from contexture.adapters.token_counters import counter_for
from contexture.builders.research.build import ResearchContextBuilder
from contexture.builders.research.request import MAX_SOURCES, MAX_TOKENS, ResearchRecipe
from contexture.errors import SourceError
from contexture.ledger import Trace
from contexture.pages.values import FoundPage, PageFinder, StoredPage
from contexture.ports import Redactor, Secrets
from contexture.testing.doubles import FixedClock, WordRedactor
from contexture.types import PUBLIC, Candidate, Citation, Filter, Scope, content_hash

LOADED = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
FOLDER = "/data/images"
HIDDEN = "swordfish"
"""The word that the builder's redactor finds, unless another redactor is given."""


def stored(
    doc_id: str,
    page: int,
    text: str,
    *,
    filename: str = "",
    readers: tuple[str, ...] = (PUBLIC,),
    section_path: str | None = None,
    parent_heading: str | None = None,
) -> StoredPage:
    """A page as a store would give it, with the paths of its pictures."""
    return StoredPage(
        doc_id=doc_id,
        filename=filename or f"{doc_id}.pdf",
        page=page,
        extension="pdf",
        timestamp=LOADED,
        source_path=f"/inbox/{doc_id}.pdf",
        image_path=f"{FOLDER}/{doc_id}_page_{page:03d}.jpg",
        thumb_path=f"{FOLDER}/{doc_id}_page_{page:03d}_thumb.jpg",
        section_path=section_path,
        parent_heading=parent_heading,
        num_headings=0,
        num_tables=0,
        num_pictures=0,
        text=text,
        hash=content_hash(text),
        lang="en",
        readers=readers,
    )


def research_over(
    pages: PageFinder,
    *,
    max_sources: int = MAX_SOURCES,
    max_tokens: int = MAX_TOKENS,
    redactor: Redactor | None = None,
    secrets: Secrets | None = None,
    recipe: ResearchRecipe | None = None,
    deadline: float = 10.0,
) -> ResearchContextBuilder:
    """A research builder over these pages, with a clock that stands still."""
    return ResearchContextBuilder(
        pages,
        max_sources,
        max_tokens,
        counter=counter_for("o200k_base"),
        redactor=redactor or WordRedactor((HIDDEN,)),
        clock=FixedClock(),
        secrets=secrets,
        recipe=recipe,
        deadline=deadline,
    )


class ScriptedPages:
    """Gives these pages with these scores, to those who may read them, whatever the question is.

    `text` and `visual` are scores by document and page. `fail` names the searches (`text`, `visual`, `pages`) that
    let us down. `asked` has every question, `filters` what each was narrowed by, and `reads` how many pages each read
    was for.

    pages = ScriptedPages([stored("abc", 1, "Solar power is cheap.")], text={("abc", 1): 0.9})
    """

    def __init__(
        self,
        pages: Sequence[StoredPage],
        *,
        text: Mapping[tuple[str, int], float] | None = None,
        visual: Mapping[tuple[str, int], float] | None = None,
        fail: Sequence[str] = (),
    ) -> None:
        self._pages = {(page.doc_id, page.page): page for page in pages}
        self._scores = {"text": dict(text or {}), "visual": dict(visual or {})}
        self._fail = frozenset(fail)
        self.asked: list[tuple[str, int, bool, bool]] = []
        self.filters: list[Filter | None] = []
        self.reads: list[int] = []

    async def find(
        self,
        scope: Scope,
        question: str,
        *,
        k: int,
        text: bool = True,
        visual: bool = True,
        where: Filter | None = None,
        trace: Trace,
    ) -> Sequence[FoundPage]:
        """The best `k` of the pages that have a score, ties by document and page; filters are not looked at."""
        self.filters.append(where)
        self.asked.append((question, k, text, visual))
        read, seen = self._answers("text", trace, wanted=text), self._answers("visual", trace, wanted=visual)
        places = [place for place in {**read, **seen} if self._readable(scope, place)]
        found = [self._found(place, read.get(place), seen.get(place)) for place in places]
        return sorted(found, key=lambda page: (-page.score, page.doc_id, page.page))[:k]

    async def pages(self, scope: Scope, wanted: Sequence[tuple[str, int]]) -> Sequence[StoredPage]:
        """Those of these pages that the scope may read."""
        if "pages" in self._fail:
            raise SourceError("the pages cannot be read")
        self.reads.append(len(wanted))
        return [self._pages[place] for place in wanted if self._readable(scope, place)]

    def _answers(self, name: str, trace: Trace, *, wanted: bool) -> Mapping[tuple[str, int], float]:
        if not wanted:
            return {}
        if name not in self._fail:
            return self._scores[name]
        trace.add_degradation("pages" if name == "text" else "pages_visual", SourceError("it does not answer"))
        return {}

    def _readable(self, scope: Scope, place: tuple[str, int]) -> bool:
        page = self._pages.get(place)
        return page is not None and bool(set(page.readers) & set(scope.principals))

    def _found(self, place: tuple[str, int], text: float | None, visual: float | None) -> FoundPage:
        page = self._pages[place]
        return FoundPage(
            doc_id=page.doc_id,
            page=page.page,
            filename=page.filename,
            score=max(score for score in (text, visual) if score is not None),
            text_score=text,
            visual_score=visual,
            candidates=() if text is None or not page.text.strip() else (_passage(page, text),),
        )


def _passage(page: StoredPage, score: float) -> Candidate:
    """The first line of a page, as the passage that was found."""
    key = f"{page.doc_id}:{page.page}"
    end = len(page.text.partition("\n")[0]) or len(page.text)
    return Candidate(
        id=f"{key}#00000",
        key=f"{key}#00000",
        text=page.text[:end],
        score=score,
        citation=Citation(
            collection="pages", record_id=key, title=page.filename, start=0, end=end, hash=page.hash, page=page.page
        ),
    )
