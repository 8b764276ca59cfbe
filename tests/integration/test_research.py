"""Research over the sample documents, read and embedded for real, answered by extracts and by the local model."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from contexture import Settings
from contexture.adapters.documents.file_types import file_extension, read_document
from contexture.answer.cited import AnswerRecipe
from contexture.answer.grounding import find_cited_numbers
from contexture.answer.research import ResearchQuestion
from contexture.answer.route import ModelRoute
from contexture.capsule import pack_capsule
from contexture.documents import ReadLimits
from contexture.engine import open_store, replay
from contexture.pages.values import Document
from contexture.service.envelope import encode_json
from contexture.types import Equals

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SAMPLES = Path(__file__).parents[2] / "examples" / "documents"
FILES = ("tidal-pilot.pdf", "figures-2025.pdf", "otchet-nasosy.pdf", "maintenance-plan.docx", "board-briefing.pptx")
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(lasting_folder):
    """An engine as it is shipped, with the sample documents that have a text of their own."""
    async with open_store(Settings(home=lasting_folder())) as engine:
        for name in FILES:
            found = read_document(SAMPLES / name, name, ReadLimits(draw=False), lambda *_: None)
            document = Document(
                doc_id=Path(name).stem,
                filename=name,
                extension=file_extension(name),
                source_path=name,
                timestamp=NOW,
                pages=found.pages,
            )
            await engine.pages.add(engine.scope, document, now=NOW)
        yield engine


@pytest.mark.parametrize(
    ("question", "name", "words"),
    [
        ("How much did the tidal pilot cost?", "tidal-pilot", "2.6 million"),
        ("When are the turbines paid back?", "tidal-pilot", "eleven years"),
        ("Сколько стоила опытная приливная станция?", "tidal-pilot", "2.6 million"),
    ],
)
async def test_a_question_finds_its_page_in_the_sample_documents(engine, question, name, words):
    """In its own language and from another, among the first three sources, with every metadata field there is."""
    built = await engine.build_research(question, now=NOW)
    best = built.sources[:3]

    assert any(source.doc_id == name and words in " ".join(source.markdown_content.split()) for source in best)
    assert all(source.filename and source.extension and source.timestamp and source.page for source in built.sources)
    assert [score.relevance_score for score in built.sources] == sorted(
        (score.relevance_score for score in built.sources), reverse=True
    )
    assert built.total_tokens <= 10_000


async def test_every_citation_of_real_pages_holds(engine):
    """Whole or cut to a small budget, a context verifies, replays, and is equal when it is built again."""
    for limit in (10_000, 300):
        built = await engine.build_research("What did the turbines deliver?", max_tokens=limit, now=NOW)

        assert (await engine.verify(encode_json(built.to_dict()))).holds
        assert (await engine.verify(pack_capsule(built.capsule))).holds
        assert built.ledger == replay(pack_capsule(built.capsule))[1]
        assert built == await engine.build_research("What did the turbines deliver?", max_tokens=limit, now=NOW)


async def test_a_filter_keeps_to_one_document(engine):
    """Filters are part of both searches."""
    built = await engine.build_research("turbines", where=Equals("doc_id", "maintenance-plan"), now=NOW)

    assert {"maintenance-plan"} >= {source.doc_id for source in built.sources}


async def test_both_searches_find_pages(engine):
    """Words and looks each bring sources of their own, and together one source per page."""
    text = await engine.build_research("tidal turbines", include_visual=False, now=NOW)
    visual = await engine.build_research("tidal turbines", include_text=False, now=NOW)
    both = await engine.build_research("tidal turbines", now=NOW)
    places = [(source.doc_id, source.page) for source in both.sources]

    assert text.sources
    assert visual.sources
    assert len(places) == len(set(places))
    assert {"text", "visual"} == {name for entry in both.ledger.entries for name in entry.signals}


async def test_an_extract_answers_and_verifies(engine):
    """The sentence with the answer, its source, and nothing to flag."""
    asked = ResearchQuestion(query="How much did the pilot cost?")
    answer = await engine.ask_research.run(asked, scope=engine.scope, now=NOW)

    assert "2.6 million" in answer.answer
    assert (True, (), ()) == (answer.extractive, answer.removed_markers, answer.unsupported)
    assert (await engine.verify(encode_json(answer.to_dict()))).holds


async def test_the_local_model_answers_and_is_checked(engine):
    """A small model may say anything: what is left names only sources there are, and the rest is flagged."""
    local = pytest.importorskip("contexture.adapters.llm.local", exc_type=ImportError)
    model = local.LocalModel()
    asker = replace(
        engine.ask_research, route=ModelRoute({model.name: model}), recipe=AnswerRecipe(answer_tokens=12), alike=None
    )
    asked = ResearchQuestion(query="How much did the pilot cost?", num_results=1, max_tokens=120)
    answer = await asker.run(asked, scope=engine.scope, now=NOW)
    model.close()

    assert answer.answer
    assert model.name == answer.model
    assert set(find_cited_numbers(answer.answer)) <= {1}
    assert not answer.extractive
