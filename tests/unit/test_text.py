"""Words, terms, sentences, passages, languages and similarity hashes, case by case."""

from __future__ import annotations

import pytest

from contexture.text.language import UNKNOWN_LANGUAGE, detect_language
from contexture.text.segmentation import split_passages, split_sentences
from contexture.text.simhash import hamming_distance, shingles, simhash
from contexture.text.terms import bm25_weights, extract_terms, split_words, term_id


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("", UNKNOWN_LANGUAGE),
        ("12:30 — 45 %", UNKNOWN_LANGUAGE),
        ("pump", "en"),
        ("The pump stands under the engine.", "en"),
        ("Насос стоит под двигателем.", "ru"),
        ("Насос Bosch стоит под двигателем.", "ru"),
        ("Насос працює, її фільтр чистий, є тиск", "uk"),
        ("水泵在发动机下面", "zh"),
        ("ポンプはエンジンの下にあります", "ja"),
        ("펌프는 엔진 아래에 있습니다", "ko"),
        ("المضخة تحت المحرك", "ar"),
        ("ปั๊มอยู่ใต้เครื่องยนต์", "th"),
        ("Η αντλία είναι κάτω από τον κινητήρα", "el"),
        ("המשאבה מתחת למנוע", "he"),
        ("Die Pumpe ist nicht unter dem Motor und das ist gut", "de"),
        ("La pompe est dans le moteur et elle ne fuit pas", "fr"),
        ("La bomba está en el motor y no pierde agua por las juntas", "es"),
        ("La pompa è nella barca e non perde più quando si accende", "it"),
        ("A bomba não está no motor e também não é para a água", "pt"),
        ("De pomp is niet onder het dek maar bij de motor van het schip", "nl"),
    ],
)
def test_the_language_of_a_text(text: str, lang: str) -> None:
    """Script decides where it can, function words decide between Latin languages."""
    assert lang == detect_language(text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("  \n ", []),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            "Dr. Smith met J. Doe at 5 p.m. on Monday. He left.",
            ["Dr. Smith met J. Doe at 5 p.m. on Monday.", "He left."],
        ),
        ("В 2026 г. насос меняли. Потом т.д. и т.п. ещё.", ["В 2026 г. насос меняли.", "Потом т.д. и т.п. ещё."]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("Pi is 3.14 or so.", ["Pi is 3.14 or so."]),
        ("水泵坏了。快修！", ["水泵坏了。", "快修！"]),
        ("A title\n\nA paragraph", ["A title", "A paragraph"]),
        ("- one\n- two\n3) three", ["- one", "- two", "3) three"]),
        ("Anna: hello\nBoris: hi", ["Anna: hello", "Boris: hi"]),
        ("# Head\n## Sub", ["# Head", "## Sub"]),
        ("no end", ["no end"]),
        ("Wait... what?", ["Wait...", "what?"]),
        (".", ["."]),
    ],
)
def test_sentences_end_where_a_reader_would_say(text: str, pieces: list[str]) -> None:
    """Abbreviations, initials and decimals do not end a sentence; blank lines and list items do."""
    assert pieces == [text[start:end] for start, end in split_sentences(text)]


def test_passages_prefer_the_ends_of_paragraphs() -> None:
    """Once half the target is reached, a blank line ends a passage although more would fit."""
    text = "One two three four five.\n\nSix seven eight."

    assert 2 == len(split_passages(text, target=45))
    assert 1 == len(split_passages(text.replace("\n\n", " "), target=45))


def test_a_small_tail_joins_its_passage() -> None:
    """A passage may overshoot by a quarter rather than leave a stray sentence behind."""
    text = "One two three four five six. End it."

    assert 1 == len(split_passages(text, target=30))
    assert 2 == len(split_passages(text, target=20))


def test_endless_sentences_are_cut_at_white_space() -> None:
    """A sentence longer than twice the target is cut between words, or inside one when there is no gap."""
    words_cut = _pieces("word " * 40, 20)
    letters_cut = _pieces("x" * 100, 20)

    assert all(len(piece) <= 40 and set(piece.split()) == {"word"} for piece in words_cut)
    assert ["x" * 40, "x" * 40, "x" * 20] == letters_cut


def test_a_cut_before_trailing_space_leaves_nothing_behind() -> None:
    """When only white space follows the cut, there is no empty passage."""
    assert ["x" * 40] == _pieces("x" * 40 + " " * 30 + "\u2003" * 20, 20)


def _pieces(text: str, target: int) -> list[str]:
    return [text[start:end] for (start, end), _ in split_passages(text, target=target)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Pump, the PUMPS!", ["the", "pump", "the", "pumps"]),
        ("AdamSmith wrote", ["adamsmith", "adam", "smith", "wrote"]),
        ("don't l’eau", ["don", "t", "l", "eau"]),
        ("ёлка ЁЖ", ["елка", "еж"]),
        ("ﬁne ½", ["fine", "1", "2"]),
        ("snake_case x2", ["snake", "case", "x2"]),
        ("水泵a", ["水", "泵", "a"]),
        ("\ud800", []),
    ],
)
def test_words_are_folded(text: str, expected: list[str]) -> None:
    """Case, compatibility forms, apostrophes and joined names do not hide a word."""
    assert expected == split_words(text)


def test_inflections_share_a_term() -> None:
    """English and Russian words are stemmed, each by the rules of its script; stop words have no term."""
    assert extract_terms("pumps pumping the pumped") == extract_terms("pump pump pump")
    assert extract_terms("насосы и насосами") == extract_terms("насос насос")
    assert term_id("the") is None


def test_endless_words_are_cut() -> None:
    """Words beyond 64 characters share the term of their beginning."""
    assert term_id("z" * 64) == term_id("z" * 500)


def test_a_repeated_term_weighs_more_but_less_and_less() -> None:
    """BM25 saturates: the second occurrence adds less than the first, and longer texts weigh less."""
    one, two, three = (next(iter(bm25_weights("pump " * times).values())) for times in (1, 2, 3))
    diluted = bm25_weights("pump " + " ".join(f"w{number}" for number in range(50)))

    assert 0 < three - two < two - one < one
    assert diluted[extract_terms("pump")[0]] < one
    assert {} == bm25_weights("the and of")


def test_close_texts_have_close_hashes() -> None:
    """Changing one word of fifty moves few bits; another text moves about half of them."""
    text = " ".join(f"w{number}" for number in range(50))

    assert 0 == hamming_distance(simhash(text), simhash(text.upper()))
    assert hamming_distance(simhash(text), simhash(text.replace("w25", "other"))) < 16
    assert hamming_distance(simhash(text), simhash(" ".join(f"v{number}" for number in range(50)))) > 16


def test_texts_without_words_hash_to_nothing() -> None:
    """No words, no shingles; fewer than three words make one."""
    assert (0, frozenset()) == (simhash("…"), shingles(" "))
    assert [1, 1, 1, 2] == [len(shingles(text)) for text in ("a", "a b", "a b c", "a b c d")]
