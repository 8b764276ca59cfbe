"""The research builder behaves as its specification says, example by example."""

from __future__ import annotations

import dataclasses
import inspect
import json

import pytest

from contexture.adapters.token_counters import counter_for
from contexture.builders.research.build import ResearchContextBuilder
from contexture.builders.research.request import SearchMode, parse_search_mode
from contexture.builders.research.result import ResearchContext, SourceDocument
from contexture.config import Settings
from support.research import ScriptedPages, research_over, stored

CRISIS = "The financial crisis of 2008 was caused by subprime mortgages."
LEHMAN = "The collapse of Lehman Brothers in September 2008 triggered a global financial panic."
ECONOMICS = "Subprime mortgages played a key role. Banks issued loans to borrowers with poor credit histories."
PAGES = (
    stored("abc123", 3, CRISIS, filename="crisis-report.pdf"),
    stored("abc123", 4, LEHMAN, filename="crisis-report.pdf"),
    stored("def456", 12, ECONOMICS, filename="economics.pdf"),
)
SCORES = {("abc123", 3): 0.95, ("abc123", 4): 0.92, ("def456", 12): 0.88}
QUESTION = "What caused the 2008 financial crisis?"
COUNTER = counter_for("o200k_base")
ENGLISH = (
    "Renewable energy sources such as solar and wind have become cheaper every year since 2010, and the benefits go "
    "beyond the price of electricity. A village that owns its turbines keeps the income, trains its own engineers and "
    "is less exposed to the market. Critics point out that the grid must be rebuilt: storage, longer lines and smarter "
    "meters cost about 40 percent of the total investment (see table 3). Nevertheless, the report concludes that the "
    "transition pays for itself within twelve years in most regions."
)
RUSSIAN = (
    "Возобновляемые источники энергии с каждым годом становятся дешевле, и польза от них не сводится к цене "
    "электричества. Посёлок, которому принадлежат собственные ветряки, оставляет доход у себя, учит своих инженеров и "
    "меньше зависит от рынка. Противники напоминают, что сети придётся строить заново: накопители, линии и умные "
    "счётчики стоят около 40 процентов всех вложений (смотрите таблицу 3). И всё же авторы отчёта считают, что переход "
    "окупится за двенадцать лет почти везде."
)


def builder(**told) -> ResearchContextBuilder:
    """A builder over the pages of the examples."""
    return research_over(ScriptedPages(PAGES, text=SCORES, visual={("abc123", 3): 0.6}), **told)


def test_the_source_has_the_documented_fields_and_defaults():
    """Names, order and defaults of `SourceDocument`; citations come behind them."""
    fields = {field.name: field.default for field in dataclasses.fields(SourceDocument)}
    none, required = None, dataclasses.MISSING

    assert list(fields.items())[:-1] == [
        ("doc_id", required), ("filename", required), ("page", required), ("extension", required),
        ("thumbnail_path", none), ("image_path", none), ("timestamp", ""), ("section_path", none),
        ("parent_heading", none), ("markdown_content", ""), ("relevance_score", 0.0),
    ]  # fmt: skip


def test_a_source_becomes_json():
    """`to_dict` has every field and can be written as JSON."""
    source = SourceDocument("abc", "doc1.pdf", 3, "pdf", markdown_content="text", relevance_score=0.5)

    assert {field.name for field in dataclasses.fields(SourceDocument)} == set(json.loads(json.dumps(source.to_dict())))


def test_a_context_needs_only_the_documented_fields():
    """Text, sources, tokens and truncation make a context, and its map numbers the sources from 1."""
    one, two = SourceDocument("a", "doc1.pdf", 3, "pdf"), SourceDocument("b", "doc2.pdf", 5, "pdf")
    context = ResearchContext("text", [one, two], 10, False)

    assert {1: one, 2: two} == context.get_citation_map()


def test_the_constructor_and_the_methods_take_the_documented_arguments():
    """Names, order and defaults are those of the specification."""
    made = inspect.signature(ResearchContextBuilder).parameters
    asked = inspect.signature(ResearchContextBuilder.build_context).parameters

    assert (10, 10_000) == (made["max_sources"].default, made["max_tokens"].default)
    assert [
        ("query", inspect.Parameter.empty),
        ("num_results", 10),
        ("include_text", True),
        ("include_visual", True),
    ] == [(name, asked[name].default) for name in list(asked)[1:5]]
    assert (10, 10_000) == (Settings().research_max_sources, Settings().research_max_tokens)


async def test_the_example_context():
    """Three pages in the order of their scores, each under its header, a blank line between."""
    context = await builder().build_context(QUESTION)

    assert context.formatted_text == (
        f"[Document 1: crisis-report.pdf, Page 3]\n{CRISIS}\n\n"
        f"[Document 2: crisis-report.pdf, Page 4]\n{LEHMAN}\n\n"
        f"[Document 3: economics.pdf, Page 12]\n{ECONOMICS}"
    )
    assert [0.95, 0.92, 0.88] == [source.relevance_score for source in context.sources]
    assert not context.truncated
    assert COUNTER.count(context.formatted_text) == context.total_tokens


async def test_sources_match_num_results_or_fewer():
    """Two when two are asked for, three when there are no more."""
    assert 2 == len((await builder().build_context(QUESTION, 2)).sources)
    assert 3 == len((await builder().build_context(QUESTION, 10)).sources)


async def test_a_small_builder_has_fewer_sources_and_tokens():
    """Five sources in 3,000 tokens, however many are found."""
    many = [stored(f"d{at}", 1, f"Page {at} about intelligence. " + f"Model {at} learns. " * 300) for at in range(8)]
    small = research_over(
        ScriptedPages(many, text={(page.doc_id, 1): 0.9 for page in many}), max_sources=5, max_tokens=3_000
    )
    context = await small.build_context("Brief overview of AI?")

    assert context.truncated
    assert len(context.sources) <= 5
    assert context.total_tokens <= 3_000


@pytest.mark.parametrize(
    ("flags", "searched"),
    [((True, True), (True, True)), ((False, True), (False, True)), ((True, False), (True, False))],
)
async def test_only_the_chosen_collections_are_searched(flags, searched):
    """`include_text` and `include_visual` choose, and both are the default."""
    pages = ScriptedPages(PAGES, text=SCORES, visual={("abc123", 4): 0.6})
    await research_over(pages).build_context(QUESTION, 5, *flags)

    assert [searched] == [(text, visual) for _, _, text, visual in pages.asked]


async def test_visual_only_gives_the_pages_that_look_right():
    """A page that only its words match is not a source."""
    pages = ScriptedPages(PAGES, text=SCORES, visual={("def456", 12): 0.7})
    context = await research_over(pages).build_context("Show me charts", num_results=5, include_text=False)

    assert [("def456", 12, 0.7)] == [(each.doc_id, each.page, each.relevance_score) for each in context.sources]


def test_search_modes():
    """`hybrid` is both collections."""
    assert [(True, True), (True, False), (False, True)] == [parse_search_mode(mode) for mode in SearchMode]


async def test_a_search_gives_the_documented_results():
    """Document, page, score, file name and metadata, in the mode that was asked for."""
    found = await builder().search(QUESTION, num_results=2, search_mode="text")

    assert [("abc123", 3, 0.95), ("abc123", 4, 0.92)] == [
        (each["doc_id"], each["page"], each["score"]) for each in found
    ]
    assert {"doc_id", "page", "score", "filename", "metadata"} == set(found[0])
    assert {"doc_id", "filename", "page", "extension", "timestamp", "image_path", "thumb_path", "section_path",
            "parent_heading", "num_headings", "num_tables", "num_pictures"} == set(found[0]["metadata"])  # fmt: skip
    assert 3 == len(await builder().search(QUESTION))


async def test_metadata_of_a_source():
    """The example's file name and thumbnail."""
    page = stored("abc123", 5, "Text.", filename="report.pdf")
    source = await research_over(ScriptedPages([page])).get_source_metadata("abc123", 5)

    assert ("report.pdf", "/data/images/abc123_page_005_thumb.jpg") == (source.filename, source.thumbnail_path)
    assert (0.0, "pdf", "Text.") == (source.relevance_score, source.extension, source.markdown_content)


async def test_a_missing_document_raises_value_error():
    """As documented."""
    with pytest.raises(ValueError, match="no page 9 of document 'nope'"):
        await builder().get_source_metadata("nope", 9)


def test_a_citation_block():
    """Header line, then content."""
    source = SourceDocument("abc", "crisis.pdf", 3, "pdf", markdown_content=CRISIS)

    assert f"[Document 1: crisis.pdf, Page 3]\n{CRISIS}" == builder().format_source_citation(source, 1)


def test_the_deduplication_example():
    """The higher of two scores stays, and the order is by score."""
    results = [
        {"doc_id": "def", "page": 2, "score": 0.85},
        {"doc_id": "abc", "page": 1, "score": 0.90},
        {"doc_id": "abc", "page": 1, "score": 0.95, "metadata": {"extension": "pdf"}},
    ]

    assert [results[2], results[0]] == builder().deduplicate_results(results)


def test_the_truncation_example():
    """Sources of 15,000 tokens are cut to 10,000 from the end."""
    sources = [
        SourceDocument(f"d{at}", f"d{at}.pdf", at, "pdf", markdown_content="word " * 1_490, relevance_score=1 - at / 10)
        for at in range(1, 11)
    ]
    kept = builder().truncate_to_budget(sources, max_tokens=10_000)
    text = "\n\n".join(builder().format_source_citation(each, n) for n, each in enumerate(kept, start=1))

    assert 7 == len(kept)
    assert [source.doc_id for source in sources[:7]] == [source.doc_id for source in kept]
    assert COUNTER.count(text) <= 10_000


@pytest.mark.parametrize("text", [ENGLISH, RUSSIAN])
def test_estimates_are_within_a_tenth(text):
    """Of English and of Russian prose."""
    true = COUNTER.count(text)

    assert abs(builder().estimate_tokens(text) - true) <= true / 10


def test_estimates_are_within_a_tenth_on_average(eval_data):
    """Of the paragraphs of an encyclopaedia, in English and in Russian."""
    rows = [json.loads(line)["text"] for line in (eval_data / "xquad" / "corpus.jsonl").read_text().splitlines()]
    for russian in (False, True):
        texts = [text for text in rows if russian == any("а" <= letter <= "я" for letter in text)]
        errors = [abs(builder().estimate_tokens(text) / COUNTER.count(text) - 1) for text in texts]

        assert len(texts) > 100
        assert sum(errors) / len(errors) <= 0.1
