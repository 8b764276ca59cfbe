"""What is kept of articles: across restarts, changes and failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from contexture.adapters.graph.phrases import CapitalisedPhrases
from contexture.adapters.graph.sqlite import SqliteGraphCache
from contexture.errors import SourceUnavailable
from contexture.graph.store import GraphStore
from contexture.ledger import Trace
from contexture.testing.doubles import FailingRedactor, WordRedactor
from contexture.types import PUBLIC, Mention, Record, Scope
from support.workbench import NAME, workbench

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")
TEXT = "In May, Anna Berg hired Boris Ulm."


class Counting(CapitalisedPhrases):
    """Counts the texts it is given."""

    def __init__(self) -> None:
        self.read = 0

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """The phrases."""
        self.read += 1
        return super().find(text, lang)


class Broken(CapitalisedPhrases):
    """A model that fails."""

    name = "broken"

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """Never."""
        raise SourceUnavailable("the model is gone")


@pytest.fixture
async def bench(new_folder):
    """An index with one public record and one of anna's."""
    async with workbench(new_folder()) as found:
        await found.add(ANNA, [Record(id="a", text=TEXT, acl=(PUBLIC,)), Record(id="b", text=TEXT, acl=("user:anna",))])
        yield found


def graph(bench, folder: Path, recognizer=None, redactor=None) -> GraphStore:
    """A store over the bench's records, with what it keeps in a folder."""
    return GraphStore(
        index=bench.index,
        cache=SqliteGraphCache(folder / "graph.sqlite"),
        recognizer=recognizer or Counting(),
        fallback=CapitalisedPhrases(),
        redactor=redactor or WordRedactor(()),
        collection=NAME,
    )


async def ids(store: GraphStore, scope: Scope, *, learn: bool = True, trace: Trace | None = None) -> list[str]:
    """The records of which something is known."""
    return [each.record_id for each in await store.extract(scope, ["a", "b"], trace=trace or Trace(), learn=learn)]


async def test_a_record_is_read_once_even_after_a_restart(bench, new_folder):
    """What was extracted is found again by another process."""
    folder, first, second = new_folder(), Counting(), Counting()
    before = await graph(bench, folder, first).extract(ANNA, ["a"], trace=Trace())
    after = await graph(bench, folder, second).extract(ANNA, ["a"], trace=Trace())

    assert (1, 0) == (first.read, second.read)
    assert list(before) == list(after)


async def test_without_learning_only_what_is_kept_is_given(bench, new_folder):
    """Nothing is read anew where it may not be."""
    store = graph(bench, new_folder())
    assert [] == await ids(store, ANNA, learn=False)
    await store.extract(ANNA, ["b"], trace=Trace())

    assert ["b"] == await ids(store, ANNA, learn=False)


async def test_what_is_kept_of_a_hidden_record_is_given_to_nobody_else(bench, new_folder):
    """The index decides at every call who may read."""
    store = graph(bench, new_folder())
    assert ["a", "b"] == await ids(store, ANNA)

    assert ["a"] == await ids(store, BORIS)
    assert ["a"] == list(await store.ids_mentioning(BORIS, ["Anna Berg"], most=1, trace=Trace()))
    assert ["a", "b"] == list(await store.ids_mentioning(ANNA, ["anna BERG"], most=5, trace=Trace()))


async def test_deleted_and_changed_records_are_followed(bench, new_folder):
    """A deleted record is gone from the graph, a changed one is read again."""
    store = graph(bench, new_folder())
    await ids(store, ANNA)
    await bench.index.delete(ANNA, NAME, ["a"])
    await bench.add(ANNA, [Record(id="b", text="In May, Carla Diaz left.", acl=("user:anna",))])
    found = await store.extract(ANNA, ["a", "b"], trace=Trace())

    assert [("b", ["Carla Diaz"])] == [
        (each.record_id, [m.name for m in each.mentions if " " in m.name]) for each in found
    ]
    assert [] == list(await store.ids_mentioning(ANNA, ["Boris Ulm"], most=5, trace=Trace()))


async def test_forgotten_records_leave_the_file(bench, new_folder):
    """Nothing of a forgotten record is kept."""
    store = graph(bench, new_folder())
    await ids(store, ANNA)
    await store.forget(ANNA, ["a", "b"])

    assert [] == await ids(store, ANNA, learn=False)


async def test_a_failing_model_is_replaced_and_named(bench, new_folder):
    """Phrases do the work of a model that fails, and what they find is not kept as its work."""
    store, trace = graph(bench, new_folder(), Broken()), Trace()
    assert ["a", "b"] == await ids(store, ANNA, trace=trace)

    assert ["entities"] == [each.source for each in trace.finish(()).degradations]
    assert [] == await ids(store, ANNA, learn=False)


async def test_a_damaged_cache_is_named_and_done_without(bench, new_folder):
    """A file that is no database costs time, not the answer."""
    folder = new_folder()
    (folder / "graph.sqlite").write_bytes(b"not a database" * 200)
    trace = Trace()

    assert ["a", "b"] == await ids(graph(bench, folder), ANNA, trace=trace)
    assert {"graph"} == {each.source for each in trace.finish(()).degradations}


async def test_a_record_that_cannot_be_redacted_is_left_out(bench, new_folder):
    """Redaction fails closed for the graph too."""
    trace = Trace()
    store = graph(bench, new_folder(), redactor=FailingRedactor("Boris"))

    assert [] == await ids(store, ANNA, trace=trace)
    assert ["redactor:FailingRedactor"] == [each.source for each in trace.finish(()).degradations]


async def test_hidden_words_are_no_entities(bench, new_folder):
    """What redaction hides is nowhere in what is kept."""
    store = graph(bench, new_folder(), redactor=WordRedactor(("Anna Berg",)))
    found = await store.extract(ANNA, ["a"], trace=Trace())

    assert "Anna" not in repr(found)
    assert "Boris Ulm" in repr(found)
