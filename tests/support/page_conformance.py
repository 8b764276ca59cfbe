"""What documents promise over any index: subclass it, give an `index` fixture.

The fixture opens an index for the vectors in `DOCUMENT_VECTORS`. It may live as long as it likes, because every check
writes as a tenant of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from contexture.adapters.pages.regions import RegionEncoder
from contexture.builders.research.build import ResearchContextBuilder
from contexture.ledger import Trace
from contexture.pages.images import PageImages
from contexture.pages.store import PageStore, VisualSearch
from contexture.pages.values import FoundPage
from contexture.pages.visual import VisualPages
from contexture.ports import Index
from contexture.retrieval.citations import verify_citations
from contexture.testing.doubles import NOON
from contexture.text.language import detect_language
from contexture.types import Equals, Filter, Scope
from support.visual_conformance import PAGES, document
from support.workbench import Parts, Workbench

DOCUMENT_VECTORS = Parts().encoders.vectors


def looks_over(bench: Workbench) -> VisualPages:
    """The search over what pages show."""
    return VisualPages(index=bench.index, encoder=RegionEncoder(Parts().encoders, detect_language))


def pages_over(bench: Workbench, folder: Path, visual: VisualSearch | None = None) -> PageStore:
    """A page store whose pictures lie in `folder`."""
    return PageStore(
        index=bench.index,
        preparer=bench.preparer,
        search=bench.search,
        rules=Parts().redactor.rules,
        images=PageImages(folder),
        counters=[Parts().counter],
        visual=visual or looks_over(bench),
    )


class PageConformance:
    """Documents are stored as pages, found by words and by looks, and cited."""

    @pytest.fixture
    def store(self, index: Index, tmp_path: Path) -> PageStore:
        """Documents over the index, with embedders that know words alone."""
        return pages_over(Workbench(index, Parts()), tmp_path)

    @pytest.fixture
    def scope(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))

    async def test_pages_come_back_in_the_order_asked_for(self, store: PageStore, scope: Scope) -> None:
        """In one read, unknown ones left out; the whole document is Markdown again."""
        await store.add(scope, document(), now=NOON)
        found = await store.pages(scope, [("d1", 2), ("d1", 9), ("other", 1), ("d1", 1)])

        assert [(2, PAGES[1].text), (1, PAGES[0].text)] == [(page.page, page.text) for page in found]
        assert "\n\n".join(page.text for page in PAGES) == await store.markdown(scope, "d1")
        assert [each.doc_id for each in await store.documents(scope)] == ["d1"]

    @pytest.mark.parametrize(("text", "visual"), [(True, False), (False, True), (True, True)])
    async def test_a_page_is_found_by_words_looks_and_both(
        self, store: PageStore, scope: Scope, *, text: bool, visual: bool
    ) -> None:
        """Each kind of search gives its own score, and a page found by both has both."""
        await store.add(scope, document(), now=NOON)
        best, *_ = await _find(store, scope, "ships wait for the tide", text=text, visual=visual)

        assert (best.doc_id, best.page, best.filename) == ("d1", 1, "d1.pdf")
        assert (text, visual) == (best.text_score is not None, best.visual_score is not None)
        assert bool(best.candidates) is text
        assert (best.box is not None) is visual

    async def test_others_find_nothing_of_a_private_document(self, store: PageStore, scope: Scope) -> None:
        """Neither by words nor by looks, nor by its id."""
        boris = replace(scope, user="boris", groups=())
        await store.add(scope, document(readers=("group:sales",)), now=NOON)

        assert not await _find(store, boris, "ships wait for the tide")
        assert not await store.pages(boris, [("d1", 1)])
        assert await store.markdown(boris, "d1") is None
        assert not (await store.remove(boris, ["d1"])).count
        assert await _find(store, scope, "ships wait for the tide")

    async def test_filters_hold_for_both_searches(self, store: PageStore, scope: Scope) -> None:
        """A search in one document finds no page of another."""
        for doc_id in ("d1", "d2"):
            await store.add(scope, document(doc_id), now=NOON)

        found = await _find(store, scope, "ships wait for the tide", where=Equals("doc_id", "d2"))
        assert {"d2"} == {page.doc_id for page in found}

    async def test_a_removed_document_is_gone(self, store: PageStore, scope: Scope) -> None:
        """From both searches, and from every list."""
        await store.add(scope, document(), now=NOON)

        assert (await store.remove(scope, ["d1", "unknown"])).count_of("pages") == 1
        assert not await _find(store, scope, "ships wait for the tide")
        assert not await store.documents(scope)

    async def test_a_research_context_cites_what_is_stored(self, index: Index, store: PageStore, scope: Scope) -> None:
        """Its sources are numbered pages, and every citation resolves to the text it shows."""
        await store.add(scope, document(), now=NOON)
        parts = Parts()
        builder = ResearchContextBuilder(store, counter=parts.counter, redactor=parts.redactor, clock=parts.clock)
        context = await builder.build_context("ships wait for the tide", scope=scope, now=NOON)

        assert context.formatted_text.startswith("[Document 1: d1.pdf, Page 1]\n")
        assert not context.degradations
        assert context.citations
        assert await verify_citations(index, scope, context.citations) == []


async def _find(
    store: PageStore,
    scope: Scope,
    question: str,
    *,
    text: bool = True,
    visual: bool = True,
    where: Filter | None = None,
) -> Sequence[FoundPage]:
    trace = Trace()
    found = await store.find(scope, question, k=10, text=text, visual=visual, where=where, trace=trace)
    assert not trace.finish(()).degradations
    return found
