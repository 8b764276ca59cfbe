"""Names that are the same name, and entities in texts."""

from __future__ import annotations

import pytest

from contexture.adapters.graph.ner_models import NerModels, complete_name
from contexture.adapters.graph.phrases import CapitalisedPhrases
from contexture.graph.entities import merge_names, name_key, sound_skeleton


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Газпрома", "Gazprom"),
        ("the European Central Bank", "European Central Bank"),
        ("Norvik Lines Ltd", "norvik lines"),
        ("Powell's", "Powell"),
        ("ООО Яндекс", "Yandex"),
        ("Миллер", "Миллера"),
        ("Лавров", "Лаврову"),
        ("Дмитрий Песков", "Дмитрием Песковым"),
        ("Алексей", "Алексея"),
        ("Павел", "Павла"),
        ("Росатом", "Росатома"),
        ("Банк России", "Банком России"),
        ("Красный Крест", "Красного Креста"),
    ],
)
def test_spellings_of_a_name_have_one_key(one, other):
    """Case, inflection, script and legal form do not make another name."""
    assert name_key(one) == name_key(other) != ""


def test_a_surname_is_not_the_first_name_it_is_made_of():
    """Иванов and Иван are two people."""
    assert name_key("Иванов") != name_key("Иван")


@pytest.mark.parametrize(
    ("russian", "english"),
    [("Маска", "Musk"), ("Зеленским", "Zelensky"), ("Шольцу", "Scholz"), ("Москвы", "Moscow"), ("Джонсон", "Johnson")],
)
def test_a_name_sounds_the_same_in_both_scripts(russian, english):
    """Spellings that no transliteration explains are recognised by their consonants."""
    assert sound_skeleton(russian) == sound_skeleton(english) != ""


def test_names_with_other_vowels_sound_different():
    """Putin is not Payton, though their consonants are the same."""
    assert sound_skeleton("Путин") != sound_skeleton("Payton")


@pytest.mark.parametrize("word", ["Get", "Гаити", "US"])
def test_a_short_word_has_no_sound_of_its_own(word):
    """Two consonants are those of too many words."""
    assert sound_skeleton(word) == ""


@pytest.mark.parametrize("name", ["", "...", "Ltd", "the"])
def test_what_is_no_name_has_no_key(name):
    """Nothing is left of a legal form or of punctuation."""
    assert name_key(name) == ""


@pytest.mark.parametrize(
    ("short", "kind", "long", "long_kind"),
    [
        ("ECB", "organization", "European Central Bank", "organization"),
        ("Powell", "person", "Jerome Powell", "person"),
        ("Мария Тамм", "person", "Maria Tamm", "person"),
        ("Таллин", "place", "Tallinn", "place"),
        ("Тобиас Квилл", "person", "Tobias Quill", "person"),
    ],
)
def test_an_alias_joins_the_name_it_stands_for(short, kind, long, long_kind):
    """Initials, surnames and transliterations lead to the full name."""
    found = {name_key(short): (kind, [short]), name_key(long): (long_kind, [long])}

    assert merge_names(found)[name_key(short)] == name_key(long)


def test_a_surname_joins_the_person_who_is_mentioned_far_more_often():
    """A newspaper writes the bare surname of the person its story is about, not of a relative it mentions once."""
    names = ["Powell", "Jerome Powell", "Anna Powell"]
    found = {name_key(name): ("person", [name]) for name in names}

    assert "jerome powell" == merge_names(found, {"powell": 40, "jerome powell": 12, "anna powell": 3})["powell"]
    assert "powell" == merge_names(found, {"powell": 40, "jerome powell": 12, "anna powell": 5})["powell"]


def test_a_surname_read_as_a_company_joins_its_person_but_a_company_does_not():
    """The full name of a person is used now and then; the founder's name of a company hardly ever."""
    companies, people = ("Powell", "Disney"), ("Jerome Powell", "Walt Disney")
    found = {name_key(name): ("organization", [name]) for name in companies}
    found |= {name_key(name): ("person", [name]) for name in people}
    merged = merge_names(found, {"powell": 40, "jerome powell": 9, "disney": 300, "walt disney": 6})

    assert ("jerome powell", "disney") == (merged["powell"], merged["disney"])


def test_a_short_name_joins_its_company():
    """Spirit is Spirit Airlines where both are organizations."""
    found = {name_key(name): ("organization", [name]) for name in ("Norvik", "Norvik Airlines", "Norvik Council")}

    assert "norvik airlines" == merge_names(found)["norvik"]


def test_a_surname_that_two_people_bear_joins_neither():
    """A wrong link is worse than none."""
    names = ["Powell", "Jerome Powell", "Anna Powell"]
    found = {name_key(name): ("person", [name]) for name in names}

    assert {key: key for key in found} == merge_names(found)


def test_phrases_are_names_but_not_the_words_that_begin_sentences():
    """A capital letter at the start of a sentence says nothing."""
    text = "Workers met in Tallinn on Monday. Then Norvik Lines answered Maria Tamm. Tallinn is calm."
    found = [(each.name, each.kind) for each in CapitalisedPhrases().find(text, "en")]

    assert [
        ("Tallinn", "place"),
        ("Norvik Lines", "name"),
        ("Maria Tamm", "name"),
        ("Tallinn", "name"),
    ] == found


def test_mentions_stand_where_they_say():
    """The characters at a mention's offsets are its name."""
    text = "The Ministry of Energy denied it, and Boris Ulm left for Riga."

    assert all(text[each.start : each.end] == each.name for each in CapitalisedPhrases().find(text, "en"))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("text", "lang", "names"),
    [
        (
            "Глава Газпрома Алексей Миллер прилетел в Москву.",
            "ru",
            {("Газпром", "organization"), ("Алексей Миллер", "person"), ("Москва", "place")},
        ),
        ("Christine Lagarde spoke in Frankfurt.", "en", {("Christine Lagarde", "person"), ("Frankfurt", "place")}),
        ("Its café serves plum cake until it runs out.", "en", set()),
    ],
)
def test_models_give_dictionary_forms(text, lang, names):
    """Russian names come in the nominative, and each has a kind."""
    assert names == {(each.name, each.kind) for each in NerModels().find(text, lang)}


@pytest.mark.parametrize(
    ("text", "found", "name"),
    [
        ("They met at Berg's Mar-del-Norte club.", "Berg's Mar", "Mar-del-Norte"),
        ("Norvik (NRV) rose.", "Norvik (NRV", "Norvik"),
        ("Maria Tamm spoke.", "Maria Tamm", "Maria Tamm"),
    ],
)
def test_a_piece_of_a_name_is_completed(text, found, name):
    """Models cut names at hyphens and brackets, and take the owner of a place for a part of it."""
    start, whole = complete_name(text, text.index(found), found)

    assert (name, text.index(name)) == (whole, start)


def test_a_word_without_end_is_passed_over():
    """Names behind twenty thousand signs are found where they stand, and in time: peeled one by one it took minutes."""
    text = "\U0001f600" * 20_000 + " Maria Tamm spoke in Norvik."

    assert "Maria Tamm" in {text[each.start : each.end] for each in NerModels().find(text, "en")}
