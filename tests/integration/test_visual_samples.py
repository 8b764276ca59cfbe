"""The sample documents, found by what their pages show, with the shipped embedders, wherever pages live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

import contexture
from contexture.adapters.documents.file_types import file_extension, read_document
from contexture.config import Settings
from contexture.documents import ReadLimits
from contexture.engine import Contexture
from contexture.ledger import Trace
from contexture.pages.values import Document, FoundPage
from contexture.types import Equals, Filter

pytestmark = pytest.mark.integration

SAMPLES = Path(__file__).parents[2] / "examples" / "documents"
NOW = datetime(2026, 4, 1, tzinfo=UTC)
ASKED = [
    ("revenue and costs by quarter", "figures-2025.pdf", 1),
    ("figure of the revenue of four quarters", "figures-2025.pdf", 2),
    ("how often are parts inspected, and by whom", "maintenance-plan.docx", 1),
    ("spare parts in stock", "maintenance-plan.docx", 2),
    ("таблица ремонтов насосов по станциям", "otchet-nasosy.pdf", 1),
    ("repairs of pumps by station", "otchet-nasosy.pdf", 1),
    ("visits of ships to each harbour", "board-briefing.pptx", 4),
    ("results of the tidal turbines", "tidal-pilot.pdf", 1),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for every place, so that each text is embedded once."""
    return tmp_path_factory.mktemp("home")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["embedded", "chroma"])
async def engine(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[Contexture]:
    """An engine with the sample documents that need no OCR."""
    place = f"chroma:{home / 'chroma'}" if request.param == "chroma" else ""
    async with contexture.open(Settings(home=home, pages_index=place)) as opened:
        for path in sorted(SAMPLES.iterdir()):
            if "scan" not in path.name:
                await opened.pages.add(opened.scope, document(path), now=NOW)
        yield opened


def document(path: Path) -> Document:
    """A sample, read without drawing its pages."""
    found = read_document(path, path.name, ReadLimits(draw=False), lambda *_: None)
    return Document(
        doc_id=path.stem,
        filename=path.name,
        extension=file_extension(path.name),
        source_path=str(path),
        timestamp=NOW,
        pages=found.pages,
        title=found.title,
    )


async def seen(engine: Contexture, question: str, where: Filter | None = None) -> list[FoundPage]:
    """The pages that show what was asked for, best first."""
    trace = Trace()
    found = await engine.pages.find(engine.scope, question, k=3, text=False, visual=True, where=where, trace=trace)
    assert not trace.finish(()).degradations
    return list(found)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_with_the_asked_table_or_figure_is_found_first(engine: Contexture):
    """Six of eight questions, across languages too, find their page first, and all find it among the best three."""
    found = [[(page.filename, page.page) for page in await seen(engine, question)] for question, _, _ in ASKED]
    wanted = [(filename, page) for _, filename, page in ASKED]

    assert all(place in pages for place, pages in zip(wanted, found, strict=True)), found
    assert sum(place == pages[0] for place, pages in zip(wanted, found, strict=True)) >= 6, found


@pytest.mark.asyncio(loop_scope="module")
async def test_the_box_is_around_what_was_asked_for(engine: Contexture):
    """The region that answers best is the table itself."""
    best, *_ = await seen(engine, "revenue and costs by quarter", Equals("filename", "figures-2025.pdf"))

    assert best.box is not None
    assert best.text_score is None
    assert best.score == best.visual_score


@pytest.mark.asyncio(loop_scope="module")
async def test_what_no_page_shows_is_not_found(engine: Contexture):
    """A question about something else finds nothing."""
    assert await seen(engine, "the capital of France") == []


@pytest.mark.asyncio(loop_scope="module")
async def test_words_and_looks_are_found_together(engine: Contexture):
    """A search by both has the text's passages, the best region, and both scores."""
    found = await engine.pages.find(engine.scope, "revenue by quarter", k=3, trace=Trace())

    assert found[0].filename == "figures-2025.pdf"
    assert found[0].candidates
    assert found[0].text_score is not None
    assert found[0].visual_score is not None
    assert found[0].box is not None
