"""Graphs never know more than their reader may, and never depend on order or history."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from contexture.adapters.graph.phrases import CapitalisedPhrases
from contexture.adapters.graph.sqlite import SqliteGraphCache
from contexture.graph.assembly import assemble_graph, rank_paths
from contexture.graph.entities import merge_names, name_key
from contexture.graph.store import GraphStore, extract_relations
from contexture.ledger import Trace
from contexture.testing.doubles import WordRedactor
from contexture.types import PUBLIC, Record, Scope, content_hash
from support.workbench import NAME, workbench

NAMES = ("Anna Berg", "Berg", "Norvik Lines", "NL", "Boris Ulm", "Tallinn", "Таллин", "Мария Тамм", "Maria Tamm")
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own is made in it
ANNA, BORIS = Scope(tenant="acme", user="anna"), Scope(tenant="acme", user="boris")

sentences = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(
    lambda names: f"Now {' met '.join(names)} left."
)
texts = st.lists(sentences, min_size=1, max_size=4).map(" ".join)
libraries = st.lists(st.tuples(texts, st.booleans()), min_size=1, max_size=6)


def said(name: str, text: str):
    """What phrases find in a text."""
    return extract_relations(name, content_hash(text), text, CapitalisedPhrases().find(text, "en"))


def records(library, *, hidden: bool) -> list[Record]:
    """The articles, with or without those that only anna may read."""
    return [
        Record(id=f"r{at}", text=text, acl=("user:anna",) if private else (PUBLIC,))
        for at, (text, private) in enumerate(library)
        if hidden or not private
    ]


async def seen_by_boris(library, *, hidden: bool):
    """Boris's graph, after anna has learnt everything she may read, and what he can look up by name."""
    with TemporaryDirectory(dir=MEMORY) as folder:
        async with workbench(Path(folder)) as bench:
            store = GraphStore(
                index=bench.index,
                cache=SqliteGraphCache(Path(folder) / "graph.sqlite"),
                recognizer=CapitalisedPhrases(),
                fallback=CapitalisedPhrases(),
                redactor=WordRedactor(()),
                collection=NAME,
            )
            await bench.made.ensure(ANNA)
            if found := records(library, hidden=hidden):
                await bench.add(ANNA, found)
            ids = [f"r{at}" for at in range(len(library))]
            await store.extract(ANNA, ids, trace=Trace())
            graph = assemble_graph(await store.extract(BORIS, ids, trace=Trace(), learn=False))
            named = await store.ids_mentioning(BORIS, NAMES, most=2, trace=Trace())
            ends = [entity.key for entity in graph.entities][:2]
            return graph, list(named), rank_paths(graph, ends, hops=3)


@settings(max_examples=20)
@given(library=libraries)
def test_hidden_articles_change_nothing(library):
    """Entities, counts, relations, paths and lookups are the same with and without what may not be seen."""
    assert asyncio.run(seen_by_boris(library, hidden=True)) == asyncio.run(seen_by_boris(library, hidden=False))


@given(library=libraries, order=st.randoms(use_true_random=False))
def test_the_order_of_records_changes_nothing(library, order):
    """A graph is a function of the set of its records."""
    found = [said(f"r{at}", text) for at, (text, _) in enumerate(library)]
    shuffled = list(found)
    order.shuffle(shuffled)

    assert assemble_graph(found) == assemble_graph(shuffled)


@given(library=libraries, hops=st.integers(1, 3))
def test_paths_are_simple_short_and_made_of_relations(library, hops):
    """Each step of a path is a relation of the graph, and no entity is visited twice."""
    graph = assemble_graph([said(f"r{at}", text) for at, (text, _) in enumerate(library)])
    for path in rank_paths(graph, [entity.key for entity in graph.entities][:3], hops=hops):
        assert 1 <= len(path.relations) <= hops
        assert len(set(path.entities)) == len(path.entities) == len(path.relations) + 1
        assert set(path.relations) <= set(graph.relations)


@given(library=libraries)
def test_every_relation_is_supported_by_text_that_names_both(library):
    """Between the offsets of a support stand both entities, under one of their names."""
    by_id = {f"r{at}": text for at, (text, _) in enumerate(library)}
    graph = assemble_graph([said(name, text) for name, text in by_id.items()])
    for relation in graph.relations:
        ends = [graph.entities_by_key[key] for key in (relation.head, relation.tail)]
        for support in relation.support:
            piece = by_id[support.record_id][support.start : support.end]
            assert all(any(name in piece for name in (end.name, *end.aliases)) for end in ends)


@given(text=st.text(max_size=200))
def test_any_text_can_be_read(text):
    """Whatever a text holds, mentions stand where they say and have a key or none."""
    found = CapitalisedPhrases().find(text, "")

    assert all(text[each.start : each.end] == each.name for each in found)
    assert all(isinstance(name_key(each.name), str) for each in found)


@given(names=st.lists(st.sampled_from(NAMES), unique=True))
def test_what_stands_for_a_name_stands_for_itself(names):
    """Aliases lead to a name that leads nowhere else."""
    stands = merge_names({name_key(name): ("person", [name]) for name in names})

    assert all(stands[end] == end for end in stands.values())
