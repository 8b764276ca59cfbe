"""What searching pages by what they show promises over any index: subclass it, give an `index` fixture.

The fixture opens an index for the vectors in `PAGE_VECTORS`. It may live as long as it likes, because every check
writes as a tenant of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from contexture.adapters.pages.regions import RegionEncoder
from contexture.documents import BoundingBox, Page, Region, RegionKind
from contexture.errors import SourceUnavailable
from contexture.ledger import Trace
from contexture.pages.values import Document
from contexture.pages.visual import VISUAL_PAGES, VisualOptions, VisualPageHit, VisualPages
from contexture.ports import Index
from contexture.retrieval.encoders import Encoders
from contexture.testing.doubles import HashEmbedder
from contexture.text.language import detect_language
from contexture.types import PUBLIC, AnyOf, Equals, Filter, Matrix, Range, Scope

_SPEAKERS = Encoders(specialists={"en": HashEmbedder(64, "seen-en")}, generalist=HashEmbedder(48, "seen-any"))
PAGE_VECTORS = _SPEAKERS.vectors

TOP: BoundingBox = (0.1, 0.1, 0.9, 0.3)
MIDDLE: BoundingBox = (0.1, 0.4, 0.9, 0.6)
BOTTOM: BoundingBox = (0.1, 0.7, 0.9, 0.9)
LOADED = datetime(2026, 5, 1, tzinfo=UTC)


def region(kind: str, box: BoundingBox, text: str) -> Region:
    """A region of a page."""
    return Region(kind=RegionKind(kind), box=box, text=text)


PAGES = (
    Page(
        number=1,
        text="# Harbour\nShips wait for the tide.",
        regions=(region("heading", TOP, "Harbour report"), region("text", MIDDLE, "Ships wait for the tide.")),
    ),
    Page(
        number=2,
        text="Cargo by month",
        num_tables=1,
        regions=(
            region("text", TOP, "The crane was repaired in spring."),
            region("table", MIDDLE, "cargo tonnes month"),
            region("picture", BOTTOM, "lighthouse at dusk"),
        ),
    ),
    Page(number=3, text=""),
    Page(number=4, text="Причал закрыт на ремонт", regions=(region("text", TOP, "Причал закрыт на ремонт"),)),
)


def document(doc_id: str = "d1", *, pages: Sequence[Page] = PAGES, readers: tuple[str, ...] = (PUBLIC,)) -> Document:
    """A document of a few pages, English and Russian."""
    return Document(
        doc_id=doc_id,
        filename=f"{doc_id}.pdf",
        extension="pdf",
        source_path=f"/files/{doc_id}.pdf",
        timestamp=LOADED,
        pages=tuple(pages),
        readers=readers,
    )


def pages_of(index: Index) -> VisualPages:
    """The visual collection of an index, with embedders that know words alone."""
    return VisualPages(index=index, encoder=RegionEncoder(_SPEAKERS, detect_language), options=VisualOptions(floor=0.4))


class VisualConformance:
    """Pages are found by their regions, by whom and where it is allowed."""

    @pytest.fixture
    def visual(self, index: Index) -> VisualPages:
        """The collection that the checks use."""
        return pages_of(index)

    @pytest.fixture
    def scope(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))

    @pytest.mark.parametrize(
        ("question", "page", "box"),
        [
            ("cargo tonnes month", 2, MIDDLE),
            ("lighthouse at dusk", 2, BOTTOM),
            ("ships wait tide", 1, TOP),
            ("причал ремонт", 4, TOP),
        ],
    )
    async def test_a_page_is_found_by_one_of_its_regions(
        self, visual: VisualPages, scope: Scope, question: str, page: int, box: BoundingBox
    ) -> None:
        """The best page has the region that was asked for, and the answer says where it stands."""
        await visual.add(scope, document())
        seen = await find(visual, scope, question)

        assert (seen[0].doc_id, seen[0].page) == ("d1", page)
        assert 0.4 <= seen[0].score <= 1
        assert seen[0].box is not None
        assert seen[0].box[:2] == pytest.approx(box[:2], abs=0.01)

    async def test_the_best_pages_come_first(self, visual: VisualPages, scope: Scope) -> None:
        """Scores fall, ties go to the smaller document and page, and no more than `k` are given."""
        for doc_id in ("d2", "d1"):
            await visual.add(scope, document(doc_id))
        seen = await find(visual, scope, "cargo tonnes month", k=3)

        assert [(each.doc_id, each.page) for each in seen[:2]] == [("d1", 2), ("d2", 2)]
        assert sorted((each.score for each in seen), reverse=True) == [each.score for each in seen]
        assert len(await find(visual, scope, "cargo tonnes month", k=1)) == 1

    async def test_what_nothing_shows_is_not_found(self, visual: VisualPages, scope: Scope) -> None:
        """Pages below the floor do not match, and an empty collection has none."""
        assert not await find(visual, scope, "volcano")
        await visual.add(scope, document())
        assert not await find(visual, scope, "volcano eruption lava")

    async def test_only_readers_see_a_page(self, visual: VisualPages, scope: Scope) -> None:
        """Neither other users nor other tenants find it or change what others find."""
        boris = replace(scope, user="boris", groups=())
        await visual.add(scope, document("open"))
        before = await find(visual, boris, "cargo tonnes month")
        await visual.add(scope, document("secret", readers=("group:sales",)))

        assert {each.doc_id for each in await find(visual, scope, "cargo tonnes month")} == {"open", "secret"}
        assert before == await find(visual, boris, "cargo tonnes month")
        assert not await find(visual, replace(scope, tenant=uuid4().hex), "cargo tonnes month")

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (Equals("doc_id", "d2"), {"d2"}),
            (AnyOf("filename", ("d1.pdf", "d3.pdf")), {"d1"}),
            (Range(field="page", gt=2), set[str]()),
            (Equals("extension", "docx"), set[str]()),
        ],
    )
    async def test_filters_narrow_the_search(
        self, visual: VisualPages, scope: Scope, where: Filter, expected: set[str]
    ) -> None:
        """What a filter on the metadata leaves out is not found."""
        for doc_id in ("d1", "d2"):
            await visual.add(scope, document(doc_id))

        seen = await find(visual, scope, "lighthouse at dusk", where=where)
        assert {each.doc_id for each in seen if each.page == 2} == expected

    async def test_a_document_is_replaced_whole(self, visual: VisualPages, scope: Scope) -> None:
        """Pages that its new version does not have are gone."""
        await visual.add(scope, document())
        await visual.add(scope, document(pages=PAGES[:1]))

        assert not await find(visual, scope, "lighthouse at dusk")
        assert [each.page for each in await find(visual, scope, "ships wait tide")] == [1]

    async def test_removing_says_how_many_pages_there_were(self, visual: VisualPages, scope: Scope) -> None:
        """Unknown documents count for nothing, those with a longer name stay, hidden ones are left alone."""
        boris = replace(scope, user="boris", groups=())
        await visual.add(scope, document("d1"))
        await visual.add(scope, document("d11", readers=("user:anna",)))

        assert await visual.remove(boris, ["d11"]) == 0
        assert await visual.remove(scope, ["d1", "unknown", "d1"]) == len(PAGES)
        assert {each.doc_id for each in await find(visual, scope, "lighthouse at dusk")} == {"d11"}

    async def test_metadata_is_read_from_the_collection(self, index: Index, visual: VisualPages, scope: Scope) -> None:
        """Every page has a record with its metadata, also one that shows nothing."""
        await visual.add(scope, document())
        found = await index.get(scope, VISUAL_PAGES.name, ["d1:2", "d1:3"])
        wanted = "doc_id filename page extension timestamp source_path image_path thumb_path section_path".split()

        assert [record.payload["page"] for record in found] == [2, 3]
        assert found[0].payload["num_tables"] == 1
        assert set(wanted) <= set(found[0].payload)
        assert found[0].payload["timestamp"] == LOADED.isoformat()

    async def test_without_rows_representatives_decide(self, index: Index, scope: Scope) -> None:
        """When the second stage fails the first answers alone, and the trace says so."""
        await pages_of(index).add(scope, document())
        trace = Trace()
        visual = VisualPages(index=_WithoutRows(index), encoder=RegionEncoder(_SPEAKERS, detect_language))
        seen = await visual.search(scope, "ships wait tide", k=5, where=None, trace=trace)

        assert [(each.doc_id, each.page, each.box) for each in seen[:1]] == [("d1", 1, None)]
        assert [VISUAL_PAGES.name] == [lost.source for lost in trace.finish(()).degradations]


async def find(
    visual: VisualPages, scope: Scope, question: str, *, k: int = 10, where: Filter | None = None
) -> Sequence[VisualPageHit]:
    """The pages that match; nothing may go wrong on the way."""
    trace = Trace()
    seen = await visual.search(scope, question, k=k, where=where, trace=trace)
    assert not trace.finish(()).degradations
    return seen


class _WithoutRows:
    """An index whose matrices cannot be read."""

    def __init__(self, inner: Index) -> None:
        self.create, self.search, self.scroll = inner.create, inner.search, inner.scroll
        self.collections, self.upsert, self.delete = inner.collections, inner.upsert, inner.delete
        self.get, self.version, self.close = inner.get, inner.version, inner.close
        self.optimize, self.warm, self.check_health = inner.optimize, inner.warm, inner.check_health

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """Always down."""
        raise SourceUnavailable(f"{len(ids)} matrices {name!r} of {collection!r} cannot be read for {scope.user!r}")
