"""Graphs from what records say, and the paths through them."""

from __future__ import annotations

import pytest

from contexture.adapters.graph.phrases import CapitalisedPhrases
from contexture.errors import InvalidRequest
from contexture.graph.assembly import assemble_graph, find_named_entities, rank_paths
from contexture.graph.entities import Graph, name_key
from contexture.graph.store import blank_hidden, extract_relations
from contexture.types import ExtractedMentions, Mention, Span, content_hash

CHAIN = {
    "a": "In May, Anna Berg hired Boris Ulm.",
    "b": "In June, Boris Ulm joined Norvik Lines.",
    "c": "In July, Norvik Lines sued Carla Diaz.",
}


def said(name: str, text: str) -> ExtractedMentions:
    """What phrases find in a text."""
    return extract_relations(name, content_hash(text), text, CapitalisedPhrases().find(text, "en"))


def naming(*named: tuple[str, str]) -> Graph:
    """A graph of one record with these names, each a kind and a name."""
    mentions = tuple(Mention(at, at, kind, name) for at, (kind, name) in enumerate(named))
    keys = tuple(name_key(name) for _, name in named)
    return assemble_graph([ExtractedMentions(record_id="r", hash="h", mentions=mentions, bonds=(), keys=keys)])


@pytest.fixture
def chain():
    """A graph in which each record ties two names."""
    return assemble_graph([said(name, text) for name, text in CHAIN.items()])


def test_a_relation_says_what_stands_between_and_where(chain):
    """The label is the words between the names, the support their sentence."""
    relation = next(each for each in chain.relations if {each.head, each.tail} == {"anna berg", "boris ulm"})

    assert ("hired", ["a"]) == (relation.label, [each.record_id for each in relation.support])
    assert CHAIN["a"] == CHAIN["a"][relation.support[0].start : relation.support[0].end]


def test_equal_records_in_any_order_give_an_equal_graph(chain):
    """The order in which records are found decides nothing."""
    assert chain == assemble_graph([said(name, CHAIN[name]) for name in "cab"])


def test_names_in_neighbouring_sentences_are_tied_weakly():
    """One sentence ties more than two."""
    near = assemble_graph([said("n", "Today Anna Berg spoke. Then Boris Ulm left.")])
    same = assemble_graph([said("s", "Today Anna Berg met Boris Ulm.")])

    assert 0 < near.relations[0].strength < same.relations[0].strength


def test_more_records_tie_more():
    """What two records say is stronger than what one says."""
    once = assemble_graph([said("a", CHAIN["a"])])
    twice = assemble_graph([said("a", CHAIN["a"]), said("z", CHAIN["a"])])

    assert twice.relations[0].strength > once.relations[0].strength


LABELS = {
    "In May, Norvik Lines plans to buy Tamm Motors.": "plans to buy",
    "In May, Anna Berg wrongly blamed Maria Tamm.": "wrongly blamed",
    "In May, Norvik Lines tried to oust President Maria Tamm.": "tried to oust",
    "In May, Norvik Lines wrote in a recent Tamm Motors report.": "",
    "In May, Anna Berg moved to stop the sale, Tamm Motors says.": "",
    "In May, Anna Berg is mobilizing his Tamm Motors fans.": "",
    "In May, Anna Berg, chief executive of Tamm Motors, left.": "chief executive of",
    "В мае Анна Берг возглавила Тамм Моторс.": "возглавила",
    "In May, Norvik Lines including Tamm Motors grew.": "",
    "In May, Anna Berg carried and with Maria Tamm sang.": "",
    "In May, Norvik Lines supporters are attacking Tamm Motors.": "",
    "In May, Norvik Lines said the hope is Tamm Motors.": "",
    "In May, Norvik Lines deal arguing that Tamm Motors.": "",
    "In May, Norvik Lines court on Monday scheduled Anna Berg.": "",
}


@pytest.mark.parametrize("text", LABELS)
def test_a_label_begins_with_a_verb_or_a_role(text):
    """What stands between two names but begins with another subject, a report or a clause does not relate them."""
    assert {LABELS[text]} == {each.label for each in assemble_graph([said("a", text)]).relations}


def test_entities_and_relations_are_bounded():
    """However many names there are, the graph stays small, and what was asked about stays in it."""
    names = [f"In all, Person{chr(97 + at // 26)}{chr(97 + at % 26)} met Anna Berg." for at in range(100)]
    graph = assemble_graph([said(f"{at:03d}", text) for at, text in enumerate(names)], focus={"persondv"})

    assert (60, True) == (len(graph.entities), "persondv" in graph.entities_by_key)
    assert len(graph.relations) <= 120


def test_the_question_names_its_entities(chain):
    """Entities are found in a question by any of their names, whatever the case."""
    assert {"anna berg", "norvik lines"} == set(
        find_named_entities(chain, "how is anna berg tied to the Norvik Lines?")
    )


def test_a_name_is_found_in_a_question_by_its_words_in_order():
    """Words of two names in a row are no third name, and a part of a longer name is no other one."""
    texts = [
        "In May, Norvik Lines met Anna Berg.",
        "In June, Berg Norvik met Maria Tamm.",
        "In July, Anna met Otto Lund.",
    ]
    graph = assemble_graph([said(f"{at}", text) for at, text in enumerate(texts)])

    assert {"anna berg", "norvik lines"} == set(find_named_entities(graph, "Anna Berg and Norvik Lines"))


@pytest.mark.parametrize(
    ("question", "key"),
    [
        ("Кто встречался с Лавровым?", "sergey lavrov"),
        ("Что общего у Сергея Лаврова и порта?", "sergey lavrov"),
        ("Что решили в Росатоме?", "rosat"),
        ("What did Lund say?", "otto lund"),
        ("Что сказал Отто Лунд?", "otto lund"),
        ("What does Lavrov want?", "sergey lavrov"),
    ],
)
def test_a_question_names_an_entity_in_any_case_and_by_surname(question, key):
    """Cases, bare surnames and the other script are understood, although the articles do not write so."""
    graph = naming(("person", "Сергей Лавров"), ("organization", "Росатом"), ("person", "Otto Lund"))

    assert [key] == find_named_entities(graph, question)


def test_a_hyphenated_name_is_as_full_as_one_with_spaces():
    """The usual spelling is shown."""
    graph = naming(*[("place", "Mar-del-Norte")] * 5, ("place", "Mar del Norte"))

    assert ["Mar-del-Norte"] == [each.name for each in graph.entities]


def test_a_surname_that_names_something_else_finds_no_person():
    """A company of the same name is meant more often than its founder."""
    named = (("person", "Otto Lund"), *[("organization", "Lund")] * 9)

    assert ["lund"] == find_named_entities(naming(*named), "Who owns Lund?")


@pytest.mark.parametrize(("hops", "found"), [(1, 0), (2, 1), (3, 1)])
def test_a_path_takes_no_more_steps_than_allowed(chain, hops, found):
    """Two names two steps apart are joined from two hops on."""
    assert found == len(rank_paths(chain, ["anna berg", "norvik lines"], hops=hops))


def test_paths_from_one_entity_lead_outwards_nearest_first(chain):
    """With one end the best paths are the short ones."""
    paths = rank_paths(chain, ["anna berg"], hops=3)

    assert [2, 3, 4] == [len(path.entities) for path in paths]
    assert sorted((path.score for path in paths), reverse=True) == [path.score for path in paths]


@pytest.mark.parametrize("hops", [0, 4])
def test_a_hop_limit_out_of_range_is_refused(chain, hops):
    """Nobody walks further than three steps."""
    with pytest.raises(InvalidRequest, match="hop_limit"):
        rank_paths(chain, ["anna berg"], hops=hops)


def test_hidden_stretches_are_blanked_in_place():
    """What redaction hides is not read, and all offsets stay."""
    text = "Today Anna Berg met Boris Ulm."
    blank = blank_hidden(text, [Span(6, 15, "PERSON")])

    assert len(text) == len(blank)
    assert [] == [each for each in said("a", blank).mentions if "Anna" in each.name]
