"""Russian words are found in whatever form they occur, and other languages by their own rules."""

from __future__ import annotations

import pytest

from contexture.text.terms import bm25_weights, extract_terms, index_terms, question_terms

FORMS = """
паводок паводка паводку паводком паводки
рынок рынка рынку рынком рынках
день дня дню днём дней
отец отца отцу отцом отцов
кусок куска куску куском кусков
потолок потолка потолку потолком потолки
подарок подарка подарку подарком подарков
песок песка песку песком песке
сон сна сну сном снов
лоб лба лбу лбом лбы
рот рта рту ртом рты
пень пня пню пнём пней
конец конца концу концом концов
купец купца купцу купцом купцы
палец пальца пальцу пальцем пальцев
огонь огня огню огнём огней
уголь угля углю углём углей
ветер ветра ветру ветром ветров
орёл орла орлу орлом орлы
козёл козла козлу козлом козлов
посол посла послу послом послов
узел узла узлу узлом узлов
котёл котла котлу котлом котлы
окно окна окну окном окон
письмо письма письму письмом писем
сестра сестры сестре сестрой сестёр
земля земли земле землёй земель
деревня деревни деревне деревней деревень
сосна сосны сосне сосной сосен
ёлка ёлки ёлке ёлкой ёлок
чашка чашки чашке чашкой чашек
девушка девушки девушке девушкой девушек
кошка кошки кошке кошкой кошек
песня песни песне песней песен
церковь церкви церковью церквей церквам
любовь любви любовью любовь любовей
ложь лжи ложью ложь лжи
город города городу городом городов
книга книги книге книгой книг
школа школы школе школой школ
закон закона закону законом законов
вода воды воде водой вод
учитель учителя учителю учителем учителей
гость гостя гостю гостем гостей
площадь площади площадью площадей площадям
время времени временем времён временам
человек человека человеку людей людьми
ребёнок ребёнка ребёнку детей детьми
идти шёл шла идёт иду
новый нового новому новым новые
"""
PAIRS = [(words[0], form) for line in FORMS.strip().splitlines() if (words := line.split()) for form in words[1:]]


def test_inflected_words_match() -> None:
    """At least 97 of 100 pairs share a term, fleeting vowels and all cases included."""
    missed = [pair for pair in PAIRS if not set(index_terms(pair[0])) & set(index_terms(pair[1]))]

    assert 200 == len(PAIRS)
    assert len(missed) <= 0.03 * len(PAIRS), missed


@pytest.mark.parametrize("pair", [("паводок", "паром"), ("день", "дно"), ("сон", "сани"), ("сестра", "сеструха")])
def test_other_words_do_not_match(pair: tuple[str, str]) -> None:
    """Words of other dictionary forms share no term."""
    assert not set(index_terms(pair[0])) & set(index_terms(pair[1]))


def test_both_spellings_of_a_letter_match() -> None:
    """A word is found with either spelling of ё."""
    assert index_terms("ёлка") == index_terms("елка")


def test_a_question_also_finds_records_that_hold_stems() -> None:
    """The stems that older stores hold are among the ids of a question, and are never the id of a lemma."""
    (ids,) = question_terms("рынка", "ru")

    assert set(extract_terms("рынка")) < ids
    assert not set(extract_terms("рынка")) & set(index_terms("рынка", "ru"))


def test_english_terms_are_those_of_older_stores() -> None:
    """English records need not be indexed again for their words."""
    text = "The pumps of Anna's boats are leaking"

    assert extract_terms(text) == index_terms(text, "en")
    assert [1] * 4 == [len(ids) for ids in question_terms("Which pumps of Anna's boats leak?", "en")]


def test_letters_and_digits_are_also_found_apart() -> None:
    """A word of letters and digits gives its parts too."""
    assert set(index_terms("2018")) < set(index_terms("FY2018"))
    assert set(index_terms("covid")) < set(index_terms("covid19"))
    assert not set(index_terms("1")) & set(index_terms("a1"))


@pytest.mark.parametrize(
    ("lang", "one", "other"),
    [("de", "Häuser", "Häusern"), ("de", "Zeitungen", "Zeitung"), ("fr", "nationales", "national"),
     ("es", "canciones", "canción")],
)  # fmt: skip
def test_other_languages_have_their_own_stems(lang: str, one: str, other: str) -> None:
    """German, French and Spanish words are stemmed by the rules of the text's language."""
    assert index_terms(one, lang) == index_terms(other, lang)
    assert set(index_terms(one, lang)) <= set[int]().union(*question_terms(other, lang))


def test_weights_are_those_of_the_terms_in_the_index() -> None:
    """A stored text has a weight for every term that a question can ask for."""
    assert set(index_terms("Паводки затопили рынок", "ru")) == set(bm25_weights("Паводки затопили рынок", "ru"))
