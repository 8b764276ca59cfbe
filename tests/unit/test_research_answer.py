"""Answers to research questions: markers, support, pictures, models, policy."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, replace

import pytest

from contexture.adapters.llm.extractive import NO_MATCH_ANSWERS, ExtractiveModel
from contexture.adapters.policy.open import OpenPolicy
from contexture.adapters.token_counters import counter_for
from contexture.answer._image_tokens import DEFAULT_PAGE_SIZE, AreaCost, TileCost, find_image_cost, read_jpeg_size
from contexture.answer.cited import AnswerRecipe
from contexture.answer.grounding import (
    UnsupportedReason,
    find_cited_numbers,
    find_unsupported_sentences,
    move_markers_before_stops,
    remove_unknown_markers,
    strip_markers,
    word_overlap,
)
from contexture.answer.research import AskResearch, ResearchQuestion, parse_research_question
from contexture.answer.route import ModelRoute
from contexture.conversation import Decision
from contexture.errors import InvalidRequest, NotPermitted, SourceUnavailable
from contexture.testing.doubles import NOON, ScriptedChatModel
from contexture.types import Equals, Scope
from support.research import HIDDEN, ScriptedPages, research_over, stored

SUN = "# Sun\n\nSolar power lowers bills by 30 percent. The panels of Northquay were built in 2021."
WIND = "Wind turbines are loud. Anna Berg runs the wind park."
PAGES = (stored("sun", 1, SUN, section_path="Report > Sun"), stored("wind", 7, WIND))
SCORES = {("sun", 1): 0.9, ("wind", 7): 0.6}
SCOPE = Scope.local()
QUESTION = "How much does solar power lower bills?"
COUNTER = counter_for("gpt-4o")


def jpeg(width: int = 620, height: int = 877) -> bytes:
    """The beginning of a JPEG of this size."""
    app = b"\xff\xe0" + struct.pack(">H", 4) + b"ab"
    return b"\xff\xd8" + app + b"\xff\xc0" + struct.pack(">HBHH", 8, 8, height, width) + b"\x03"


@dataclass
class Known:
    """Secrets that are known."""

    values: dict[str, str]

    def known_values(self):
        """Their values."""
        return self.values


def asker(*models, pages=None, pictures=None, policy=None, secrets=None, alike=None) -> AskResearch:
    """What answers over two pages; without models, extracts."""
    shelf = pages or ScriptedPages(PAGES, text=SCORES)

    async def picture(scope, doc_id, page, *, thumb=False):
        return (pictures or {}).get((doc_id, page))

    return AskResearch(
        build=research_over(shelf).build_context,
        policy=policy or OpenPolicy(),
        route=ModelRoute({model.name: model for model in (*models, ExtractiveModel())}),
        secrets=Known(secrets or {}),
        counter=COUNTER,
        pictures=picture,
        alike=alike,
    )


async def answered(*says, **told):
    """The answer when a model says this."""
    models = [ScriptedChatModel(list(says))] if says else []
    return await asker(*models, **told).run(ResearchQuestion(query=QUESTION), scope=SCOPE, now=NOON)


# --- markers ---


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Bills fall [1].", (1,)),
        ("Bills fall [1, 2] and [2].", (1, 2)),
        ("Bills fall [1][2].", (1, 2)),
        ("Bills fall [Document 2].", (2,)),
        ("Bills fall [Documents 1 and 2].", (1, 2)),
        ("Bills fall [Document 2: wind.pdf, Page 7].", (2,)),
        ("Bills fall [Document 1, Page 3].", (1,)),
        ("Счета падают [Документ 1; 2].", (1, 2)),
        ("Bills fall [1-2].", (1, 2)),
        ("See [2](https://example.org) and [note].", ()),
    ],
)
def test_markers_are_read_in_every_form(text, numbers):
    """Numbers, lists, ranges and headers name sources; links do not."""
    assert numbers == find_cited_numbers(text)


@pytest.mark.parametrize(
    ("text", "clean", "removed"),
    [
        ("Bills fall [9].", "Bills fall.", [(9,)]),
        ("Bills fall [1, 9].", "Bills fall [1].", [(9,)]),
        ("Bills [Document 4: x.pdf, Page 2] fall [2].", "Bills fall [2].", [(4,)]),
        ("Bills fall [0].", "Bills fall.", [(0,)]),
        ("Bills fall [1].", "Bills fall [1].", []),
    ],
)
def test_markers_that_point_nowhere_are_taken_out_and_reported(text, clean, removed):
    """Those that point somewhere stay as they are."""
    done = remove_unknown_markers(text, {1, 2})

    assert clean == done.text
    assert removed == [each.numbers for each in done.removed]


def test_markers_behind_a_full_stop_belong_to_the_sentence_before():
    """They move before it, and the text keeps its length."""
    text = "Bills fall.[1] Wind is loud. [2] So it is."

    assert "Bills fall[1]. Wind is loud [2]. So it is." == move_markers_before_stops(text)
    assert "Bills fall. Wind is loud." == strip_markers("Bills fall [1]. Wind is loud [2].")


@pytest.mark.parametrize("run", [" ", ".", "[1", "[1 ", "1, ", "[Document 1: ", "[[", "\n"])
def test_odd_texts_are_read_once(run):
    """Long runs of blanks, stops or brackets are no reason to look at a letter twice."""
    text = run * 50_000

    assert len(remove_unknown_markers(text, {1}).text) <= len(text)
    assert len(move_markers_before_stops(text)) == len(text)
    assert (2,) == find_cited_numbers(f"{' ' * 50_000}[2]")


# --- support ---

SOURCES = {1: SUN, 2: WIND}


@pytest.mark.parametrize(
    ("sentence", "lack", "missing"),
    [
        ("Solar power lowers bills by 30 percent [1].", None, ()),
        ("Bills are lowered by solar power.[1]", None, ()),
        ("Solar power lowers bills by 30 percent.", UnsupportedReason.MARKER, ()),
        ("Solar power lowers bills by 40 percent [1].", UnsupportedReason.FIGURE, ("40",)),
        ("The panels of Eastmouth were built in 2021 [1].", UnsupportedReason.NAME, ("Eastmouth",)),
        ("The panels of Northquay were built in 2021 [2].", UnsupportedReason.FIGURE, ("2021",)),
        ("Cats sleep most of the day on warm roofs [1].", UnsupportedReason.WORDS, ()),
        ("The wind park is run by Anna Berg [2].", None, ()),
        ("What the report says:", None, ()),
        ("# Solar power", None, ()),
    ],
)
async def test_a_sentence_is_compared_with_the_sources_it_names(sentence, lack, missing):
    """Without a marker, with a figure, a name or words that the source does not have, it is flagged."""
    found = await find_unsupported_sentences(sentence, SOURCES)

    assert ([] if lack is None else [(lack, missing)]) == [(each.lack, each.missing) for each in found]


async def test_flags_say_where_a_sentence_stands():
    """The place is in the answer as it is given, marker behind the stop or not."""
    answer = "Solar power lowers bills.[1] Cats sleep on warm roofs all day.[2] Wind turbines are loud. [2]"
    found = await find_unsupported_sentences(answer, SOURCES)

    assert ["Cats sleep on warm roofs all day.[2]"] == [answer[each.start : each.end] for each in found]


async def test_names_of_the_question_may_be_repeated():
    """A name that the user brought in is not held against an answer."""
    said = "For Westport solar power lowers bills by 30 percent [1]."

    assert [UnsupportedReason.NAME] == [each.lack for each in await find_unsupported_sentences(said, SOURCES)]
    assert () == await find_unsupported_sentences(said, SOURCES, question="What does Westport gain?")


@pytest.mark.parametrize(("likeness", "lacks"), [(0.9, []), (0.3, [UnsupportedReason.WORDS])])
async def test_other_words_are_compared_by_meaning(likeness, lacks):
    """A sentence in another language is borne out when it is similar enough, by what compares meanings."""

    async def alike(sentence, texts):
        assert "счета" in sentence.lower()
        assert any("Solar power" in text for text in texts)
        return likeness

    found = await find_unsupported_sentences("Счета становятся меньше на 30 процентов [1].", SOURCES, alike=alike)

    assert lacks == [each.lack for each in found]


def test_the_share_of_words_goes_by_stems():
    """Other endings are the same words."""
    assert 1.0 == word_overlap("Powers lowering the bill", [SUN])
    assert 0.0 == word_overlap("cats sleep", [SUN])


# --- answers ---


async def test_without_a_model_the_answer_is_the_sources_own():
    """Sentences with the numbers of their sources, marked as extracts, and all of them supported."""
    found = await answered()

    assert "Solar power lowers bills by 30 percent. [1]" == found.answer.split("\n")[0]
    assert (True, "extractive", ()) == (found.extractive, found.model, found.unsupported)
    assert 1 in found.cited


async def test_an_answer_is_checked_against_its_sources():
    """A marker that points nowhere is gone, a sentence without support is named, and the rest is as it was said."""
    found = await answered("Solar power lowers bills by 30 percent [1]. Wind is free [5]. It costs 99 coins [2].")

    assert "Solar power lowers bills by 30 percent [1]. Wind is free. It costs 99 coins [2]." == found.answer
    assert [(5,)] == [each.numbers for each in found.removed_markers]
    assert [UnsupportedReason.MARKER, UnsupportedReason.FIGURE] == [each.lack for each in found.unsupported]
    assert (1, 2) == found.cited
    assert {"sun:1", "wind:7"} == {each.record_id for each in found.citations}
    assert not found.extractive


async def test_an_index_in_an_answer_cites_nothing():
    """A number in brackets directly behind a word, which is no source, is neither removed nor cited."""
    found = await answered("The list[9] is short, and solar power lowers bills by 30 percent [1].")

    assert "list[9]" in found.answer
    assert ((1,), [(1,)], 1) == (found.cited, [each.numbers for each in found.markers], len(found.citations))


async def test_the_answer_has_the_documented_shape():
    """`answer`, `sources` with thumbnails, `truncated` and `total_tokens`, and what was found out besides."""
    told = json.loads(json.dumps((await answered("Solar power lowers bills by 30 percent [1].")).to_dict()))

    assert {"answer", "sources", "truncated", "total_tokens", "citations", "markers", "removed_markers", "unsupported",
            "model", "degradations", "build_id", "extractive", "cited", "images"} == set(told)  # fmt: skip
    assert told["sources"][0]["thumbnail_path"].endswith("sun_page_001_thumb.jpg")
    assert ["sun:1"] == [each["record_id"] for each in told["citations"]]


async def test_the_model_is_shown_the_sources_and_the_question():
    """Instructions first, then the numbered pages, then the question."""
    model = ScriptedChatModel(["Yes [1]."])
    await asker(model).run(ResearchQuestion(query=QUESTION), scope=SCOPE)
    system, context, user = model.asked[0]

    assert "[1]" in system["content"]
    assert context["content"].startswith("[Document 1: sun.pdf, Page 1]\n")
    assert QUESTION == user["content"]


async def test_a_model_that_fails_is_passed_over():
    """The next one answers, and the loss is named beside those of the build."""
    broken = ScriptedChatModel([SourceUnavailable("gone")], name="broken")
    found = await asker(broken).run(ResearchQuestion(query=QUESTION), scope=SCOPE)

    assert "extractive" == found.model
    assert ["model:broken"] == [each.source for each in found.degradations]


async def test_without_sources_no_model_is_asked():
    """There is nothing to answer from, so nothing is made up; what failed is named."""
    model = ScriptedChatModel(["I know anyway."])
    pages = ScriptedPages(PAGES, text=SCORES, fail=["text", "visual"])
    found = await asker(model, pages=pages).run(ResearchQuestion(query=QUESTION), scope=SCOPE)

    assert "The documents could not be searched." == found.answer
    assert [] == model.asked
    assert {"pages", "pages_visual"} == {each.source for each in found.degradations}


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Where do cats sleep?", "The documents do not answer this."),
        ("Где спят кошки?", "В документах нет ответа на этот вопрос."),
    ],
)
async def test_where_no_sentence_matches_that_is_said(question, said):
    """In the language of the question, and nothing of it is flagged."""
    ask = replace(asker(), recipe=AnswerRecipe(silence=frozenset(NO_MATCH_ANSWERS.values())))
    found = await ask.run(ResearchQuestion(query=question), scope=SCOPE)

    assert (said, (), ()) == (found.answer, found.unsupported, found.cited)


async def test_without_embedders_words_alone_decide():
    """What compares meanings may fail: the answer is given, the sentence is flagged, and the loss is named."""

    async def broken(sentence, texts):
        raise SourceUnavailable("gone")

    found = await answered("Rechnungen werden kleiner [1].", alike=broken)

    assert [UnsupportedReason.WORDS] == [each.lack for each in found.unsupported]
    assert ["support"] == [each.source for each in found.degradations]


async def test_known_secrets_are_masked_in_answers():
    """Whatever a model says."""
    found = await answered("The code is hunter2hunter2 [1].", secrets={"DB": "hunter2hunter2"})

    assert "hunter2" not in json.dumps(found.to_dict())


class Denies:
    """A policy that allows nothing."""

    async def decide(self, scope, action, resource):
        """No."""
        return Decision(allowed=False, reason=f"{action} is not for you")


async def test_the_policy_is_asked_first():
    """A denied question looks for nothing."""
    pages = ScriptedPages(PAGES, text=SCORES)
    with pytest.raises(NotPermitted, match=r"research\.ask is not for you"):
        await asker(pages=pages, policy=Denies()).run(ResearchQuestion(query=QUESTION), scope=SCOPE)

    assert [] == pages.asked


async def test_an_unknown_model_is_refused():
    """Its name and those that are configured are in the message."""
    with pytest.raises(InvalidRequest, match="extractive"):
        await asker().run(ResearchQuestion(query=QUESTION, model="nope"), scope=SCOPE)


# --- pictures ---


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("litellm:gpt-4o", (1_024, 1_024), 85 + 4 * 170),
        ("litellm:openai/gpt-4o", (2_048, 4_096), 85 + 6 * 170),
        ("litellm:gpt-5", (512, 512), 70 + 140),
        ("litellm:anthropic/claude-sonnet-4-5", (1_000, 1_000), 1_334),
        ("litellm:gemini/gemini-2.5-pro", (960, 540), 2 * 258),
        ("litellm:o3", (100, 100), 75 + 150),
    ],
)
def test_what_a_picture_costs(model, size, tokens):
    """By the rules of each family."""
    assert tokens == find_image_cost(model).tokens(*size)


def test_models_that_see_nothing():
    """Extracts and the local model are shown no pictures."""
    assert [None, None] == [find_image_cost(name) for name in ("extractive", "smollm2-135m-instruct")]
    assert 1 == AreaCost(pixels=750, longest=1_568).tokens(1, 1)
    assert 258 == TileCost(base=0, each=258, tile=768).tokens(1, 1)


def test_the_size_of_a_jpeg_is_read_from_it():
    """Segments before it are skipped; what is none has no size."""
    assert (620, 877) == read_jpeg_size(jpeg())
    assert [None, None, None] == [read_jpeg_size(data) for data in (b"", b"GIF89a", jpeg()[:12])]


def seeing(*says) -> ScriptedChatModel:
    """A model that sees."""
    return ScriptedChatModel(list(says), name="litellm:gpt-4o")


async def test_pages_are_attached_for_a_model_that_sees():
    """Each under its header, behind the question, counted in the budget."""
    model = seeing("Solar power lowers bills by 30 percent [1].")
    ask = asker(model, pictures={("sun", 1): jpeg()})
    found = await ask.run(ResearchQuestion(query=QUESTION, attach_images=2), scope=SCOPE)
    text, head, picture = model.asked[0][-1]["content"]

    assert QUESTION == text["text"]
    assert "[Document 1: sun.pdf, Page 1]" == head["text"]
    assert jpeg() == base64.b64decode(picture["image_url"]["url"].removeprefix("data:image/jpeg;base64,"))
    assert (1,) == found.images
    cost = find_image_cost("gpt-4o").tokens(620, 877) + COUNTER.count(head["text"])
    assert found.context.total_tokens + cost == found.total_tokens
    assert ["source 2 has no picture"] == [each.reason for each in found.degradations]


@pytest.mark.parametrize("text", [f"Solar power for {HIDDEN}.", "Ask hunter2hunter2 for solar power.", " "])
async def test_pages_with_something_to_hide_are_not_attached(text):
    """A picture cannot be redacted, masked or read: where that would be needed, it is left out and named."""
    pages = ScriptedPages([stored("sun", 1, text)], visual={("sun", 1): 0.9})
    known = Known({"DB": "hunter2hunter2"})
    ask = replace(
        asker(seeing("Yes [1]."), pictures={("sun", 1): jpeg()}),
        build=research_over(pages, secrets=known).build_context,
    )
    found = await ask.run(ResearchQuestion(query=QUESTION, attach_images=1), scope=SCOPE)

    assert () == found.images
    assert ["images"] == [each.source for each in found.degradations]


async def test_pictures_and_text_share_one_budget():
    """Room is kept for the pictures, and one that does not fit is left out and named."""
    long = " ".join(f"Roof {at} gives {at} units of solar power." for at in range(400))
    pages = ScriptedPages([stored("sun", 1, long)], text={("sun", 1): 0.9})
    each = find_image_cost("gpt-4o").tokens(*DEFAULT_PAGE_SIZE)
    for limit, shown in ((2 * each + 200, (1,)), (300, ())):
        ask = asker(seeing("Yes [1]."), pages=pages, pictures={("sun", 1): jpeg(*DEFAULT_PAGE_SIZE)})
        asked = ResearchQuestion(query=QUESTION, attach_images=1, max_tokens=limit)
        found = await ask.run(asked, scope=SCOPE)

        assert shown == found.images
        assert found.total_tokens <= limit


async def test_a_model_that_does_not_see_is_given_text_alone():
    """Where nobody sees, that is said; where a later model answers, nothing is counted that it was not shown."""
    blind = await asker(ScriptedChatModel(["Yes [1]."])).run(
        ResearchQuestion(query=QUESTION, attach_images=1), scope=SCOPE
    )
    failing = seeing(SourceUnavailable("gone"))
    later = await asker(failing, pictures={("sun", 1): jpeg()}).run(
        ResearchQuestion(query=QUESTION, attach_images=1), scope=SCOPE
    )

    assert ["images"] == [each.source for each in blind.degradations]
    assert ("extractive", (), later.context.total_tokens) == (later.model, later.images, later.total_tokens)


# --- requests ---


def test_a_question_is_read_from_json():
    """Every field, the search mode in place of the two flags, filters as objects."""
    told = {"query": "x", "search_mode": "visual", "where": {"equals": ["extension", "pdf"]}, "attach_images": 2}
    expected = ResearchQuestion(query="x", include_text=False, where=Equals("extension", "pdf"), attach_images=2)

    assert expected == parse_research_question(told, answering=True)
    assert replace(expected, where=None, attach_images=0) == parse_research_question(
        {"query": "x", "search_mode": "visual", "max_tokens": None}, answering=False
    )


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({}, "'query' is missing"),
        ({"query": 3}, "must be a string"),
        ({"query": "x", "num_results": True}, "whole number"),
        ({"query": "x", "num_result": 3}, "unknown field 'num_result'"),
        ({"query": "x", "search_mode": "deep"}, "hybrid, text, visual"),
        ({"query": "x", "search_mode": "text", "include_text": True}, "not both"),
        ({"query": "x", "model": "gpt-5"}, "unknown field 'model'"),
    ],
)
def test_what_is_wrong_with_a_question_is_named(told, message):
    """Missing, unknown and wrong fields; a model only where something is answered."""
    with pytest.raises(InvalidRequest, match=message):
        parse_research_question(told, answering=False)
