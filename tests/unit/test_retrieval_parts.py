"""Encoders and preparation, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from contexture.errors import InvalidRequest
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import Preparer
from contexture.testing.doubles import HashEmbedder, WordCounter, WordRedactor
from contexture.types import PUBLIC, Record, Span

ENCODERS = Encoders(specialists={"en": HashEmbedder(16, "en-1")}, generalist=HashEmbedder(8, "any-1"))


def preparer(target: int = 40) -> Preparer:
    """A preparer over doubles."""
    return Preparer(
        encoders=ENCODERS, counters=[WordCounter()], redactor=WordRedactor(("Anna",), "words-7"), target=target
    )


def record(record_id: str = "r", text: str = "The pump leaks.", **fields: str) -> Record:
    """A record with these texts."""
    return Record(id=record_id, text=text, acl=(PUBLIC,), **fields)


async def test_english_passages_have_two_vectors() -> None:
    """The specialist's, and the generalist's under a name of its own for questions in other languages."""
    english, russian = await ENCODERS.passages(["pump", "насос"], ["en", "ru"])

    assert {"en-1", "any-1@en"} == set(english)
    assert {"any-1@other"} == set(russian)
    assert {"en-1": 16, "any-1@en": 8, "any-1@other": 8, "en-1+context": 16, "any-1@other+context": 8} == (
        ENCODERS.vectors
    )


async def test_a_passage_with_a_context_has_the_mean_of_two_vectors() -> None:
    """Under a name of its own and not normalised, in the space that questions in its language search."""
    texts, langs, contexts = ["pump", "насос", "oil"], ["en", "ru", "en"], ["What leaks?", "Что течёт?", ""]
    english, russian, plain = await ENCODERS.passages(texts, langs, contexts)
    own, joined = await ENCODERS.passages(["pump", "What leaks?\npump"], ["en", "en"])

    assert {"en-1+context", "any-1@en"} == set(english)
    assert {"any-1@other+context"} == set(russian)
    assert {"en-1", "any-1@en"} == set(plain)
    assert np.allclose((own["en-1"] + joined["en-1"]) / 2, english["en-1+context"])


async def test_vectors_of_a_former_embedder_are_searched_where_there_are_some() -> None:
    """A question is embedded by the former embedder too if the collection still has its vectors."""
    encoders = Encoders(
        specialists={"en": HashEmbedder(16, "en-2")},
        generalist=HashEmbedder(8, "any-1"),
        former={"en": [HashEmbedder(16, "en-1")]},
    )

    stored = {"en-1", "en-1+context", "en-2", "any-1@en"}
    assert {"en-2", "en-1", "en-1+context"} == set(await encoders.question("pump", "en", stored))
    assert {"en-1", "en-1+context"}.isdisjoint(await encoders.question("pump", "en"))
    assert {"en-1", "en-1+context"} == encoders.former_vectors < set(encoders.vectors)
    assert {"en-2", "any-1@en"} == set((await encoders.passages(["pump"], ["en"]))[0])


async def test_a_question_meets_each_passage_in_one_space() -> None:
    """An English question searches English passages with the specialist; any other question never does."""
    context = "any-1@other+context"
    assert {"en-1", "en-1+context", "any-1@other", context} == set(await ENCODERS.question("pump", "en"))
    assert {"any-1@en", "any-1@other", context} == set(await ENCODERS.question("насос", "ru"))


async def test_a_question_is_asked_for_no_more_than_there_is() -> None:
    """Only vectors of the names given, in the order of all of them; none for none."""
    assert ["en-1"] == list(await ENCODERS.question("pump", "en", {"en-1", "any-1@en"}))
    assert ["en-1", "any-1@other"] == list(await ENCODERS.question("pump", "en", {"any-1@other", "en-1"}))
    assert ["any-1@en"] == list(await ENCODERS.question("насос", "ru", {"en-1", "any-1@en"}))
    assert {} == await ENCODERS.question("pump", "en", ())


async def test_a_preparer_computes_everything_once() -> None:
    """Language, passages, sentences, tokens, terms, hashes, vectors and redactions are there after one call."""
    text = "The pump leaks. Ask Anna about it.\n\nShe knows the valve of the pump too."
    (done,) = await preparer().prepare([record(text=text, title="Anna's pump")])
    first, second = done.passages

    assert ("en", "words-7") == (done.record.lang, done.rules)
    assert (Span(20, 24, "WORD"),) == done.redactions == first.redactions
    assert (Span(0, 4, "WORD"),) == done.title_redactions
    assert ["The pump leaks. Ask Anna about it.", "She knows the valve of the pump too."] == [
        text[each.start : each.end] for each in (first, second)
    ]
    assert ((0, 15), (16, 34)) == first.sentences
    assert ({"words": 7}, {"words": 8}) == (first.tokens, second.tokens)
    assert {"en-1", "any-1@en"} == set(first.vectors)
    assert {"en-1+context", "any-1@en"} == set(second.vectors)
    assert first.simhash != second.simhash
    assert set(first.terms) & set(second.terms)


async def test_what_crosses_a_seam_is_redacted_on_both_sides() -> None:
    """A finding that two passages share is hidden in each of them."""
    (done,) = await preparer(target=10).prepare([record(text="x" * 18 + "Anna" + "x" * 18)])

    assert [(Span(18, 20, "WORD"),), (Span(0, 2, "WORD"),)] == [each.redactions for each in done.passages[:2]]


async def test_a_passage_is_embedded_after_the_sentence_before_it_too() -> None:
    """Not the first passage of a record, nor one behind text that no passage contains."""
    text = "The pump leaks. It drips. The valve is closed. Buy now! The boat sails at nine."
    skipped = Record(id="s", text=text, acl=(PUBLIC,), payload={"boilerplate": [[47, 55]]})
    whole, parted = await preparer(target=20).prepare([record(text=text), skipped])
    joined = await ENCODERS.passages(["The valve is closed."], ["en"], ["It drips."])

    assert ["The pump leaks. It drips.", "The valve is closed.", "Buy now!", "The boat sails at nine."] == [
        text[each.start : each.end] for each in whole.passages
    ]
    assert [False, True, True, True] == ["en-1+context" in each.vectors for each in whole.passages]
    assert np.array_equal(joined[0]["en-1+context"], whole.passages[1].vectors["en-1+context"])
    assert [False, True, False] == ["en-1+context" in each.vectors for each in parted.passages]


async def test_a_title_helps_to_find_every_passage() -> None:
    """The words of the title are terms of each passage, though not part of its text."""
    plain, titled = await preparer().prepare([record("a"), record("b", title="Bilge")])

    assert set(plain.passages[0].terms) < set(titled.passages[0].terms)


async def test_a_given_language_is_kept() -> None:
    """Detection fills in only what is missing, from the title where there is no text."""
    done = await preparer().prepare(
        [record("a", lang="fr"), record("b", text=" ", title="насос"), record("c", text="")]
    )

    assert ["fr", "ru", "und"] == [each.record.lang for each in done]
    assert [1, 1, 0] == [len(each.passages) for each in done]


async def test_a_title_alone_is_the_text() -> None:
    """A record with a blank text is found by its title, and what is cited stands in the stored text."""
    titled, blank = await preparer().prepare([record("a", text=" \n", title="Bilge pump"), record("b", text=" ")])

    assert ("Bilge pump", (0, 10)) == (titled.record.text, (titled.passages[0].start, titled.passages[0].end))
    assert (" ", ()) == (blank.record.text, blank.passages)


async def test_lone_surrogates_are_mended() -> None:
    """Texts become valid Unicode: pairs are joined, halves replaced."""
    (done,) = await preparer().prepare([record(text="\ud83d\ude42 and \ud800", title="\udfff", source="\ud800")])

    assert ("🙂 and \ufffd", "\ufffd", "\ufffd") == (done.record.text, done.record.title, done.record.source)


@pytest.mark.parametrize("record_id", ["", "\ud800"])
async def test_a_record_needs_a_proper_id(record_id: str) -> None:
    """An id cannot be empty, and cannot be mended either."""
    with pytest.raises(InvalidRequest):
        await preparer().prepare([record(record_id)])


async def test_nothing_prepared_needs_no_embedder() -> None:
    """No records, no work."""
    assert [] == await preparer().prepare([])


async def test_the_hash_embedder_gives_unit_vectors() -> None:
    """Also for texts without words, and for words that cancel each other out."""
    rows = await HashEmbedder(1).embed(["", "pump", "pump valve leak river stone"])

    assert np.allclose(1.0, np.linalg.norm(rows, axis=1))
    assert (0, 1) == (await HashEmbedder(1).embed([])).shape
