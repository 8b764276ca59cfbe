"""Records are prepared again, batch by batch, beside other writes; and messages are embedded with those before them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.cli.main import app
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.ledger import Trace
from contexture.retrieval import prepare
from contexture.retrieval.backfill import Reindexer, ReindexStep
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.message_context import MessageContexts
from contexture.testing.doubles import HashEmbedder
from contexture.text.terms import extract_terms
from contexture.types import PUBLIC, Record, Scope
from support.workbench import NAME, Parts, Workbench, workbench

LOCAL = Scope.local()
OLD, NEW = HashEmbedder(16, "old-en"), HashEmbedder(24, "new-en")
FOREIGN = HashEmbedder(12, "hash-any")


def make_record(record_id: str, text: str, **fields: object) -> Record:
    """A public record."""
    given: dict[str, object] = {"acl": (PUBLIC,), **fields}
    return Record(id=record_id, text=text, **given)  # pyright: ignore[reportArgumentType]


class Upgraded(Parts):
    """The parts of a store whose English embedder was replaced."""

    @property
    def encoders(self) -> Encoders:
        """The new embedder, and the old one for what it embedded."""
        return Encoders(specialists={"en": NEW}, generalist=FOREIGN, former={"en": [OLD]})


async def find_all(bench: Workbench, question: str) -> list[str]:
    """The ids found by meaning alone, best first."""
    found = await bench.search.search(LOCAL, NAME, question, trace=Trace())
    return [each.hit.record.id for each in found]


async def spaces(bench: Workbench) -> set[str]:
    """The vector spaces in use."""
    assert isinstance(bench.index, EmbeddedIndex)
    return set(await bench.index.spaces(LOCAL, NAME) or ())


async def test_an_old_store_is_searched_before_and_after_it_is_reindexed(new_folder: Callable[[], Path]) -> None:
    """Old vectors are used until every batch is prepared again; then only new ones are left."""
    folder = new_folder()
    records = [make_record(f"r{at}", f"The pump number {at} leaks oil.") for at in range(5)]
    async with workbench(folder, Parts(english=OLD, foreign=FOREIGN)) as bench:
        await bench.add(LOCAL, records)
    async with workbench(folder, Upgraded()) as bench:
        assert {"old-en", "hash-any@en"} == await spaces(bench)
        assert {record.id for record in records} == set(await find_all(bench, "The pump number 3 leaks oil."))
        reindexer, cursor, done = Reindexer(bench.index, bench.preparer), ("", ""), 0
        while True:
            step = await reindexer.step(LOCAL, collection=cursor[0], after=cursor[1], limit=2)
            if step.done:
                break
            cursor, done = (step.collection, step.after), done + step.records
            assert {record.id for record in records} == set(await find_all(bench, "The pump number 3 leaks oil."))

        assert 5 == done
        await bench.index.optimize()
    async with workbench(folder, Upgraded()) as bench:
        assert {"new-en", "hash-any@en"} == await spaces(bench)
        assert records == [replace(each, lang="") for each in await bench.index.scroll(LOCAL, NAME)]


async def test_a_store_of_stems_finds_every_inflection_once_it_is_reindexed(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then its stems are found by questions too, beside records with lemmas; a repeated run changes nothing."""

    async def match_words(bench: Workbench, question: str) -> set[str]:
        found = await bench.search.search(LOCAL, NAME, question, trace=Trace())
        return {each.hit.record.id for each in found if "bm25" in each.hit.ranks}

    async with workbench(new_folder()) as bench:
        with monkeypatch.context() as before:
            before.setattr(
                prepare, "weigh_words", lambda words, lang: dict.fromkeys(extract_terms(" ".join(words)), 1.0)
            )
            await bench.add(LOCAL, [make_record("old", "Паводок затопил рынки, и этот день запомнили.")])
        await bench.add(LOCAL, [make_record("new", "Паводок размыл берег.")])

        assert {"old", "new"} == await match_words(bench, "паводок")
        assert {"old"} == await match_words(bench, "рынки")
        assert set() == await match_words(bench, "дня")
        for _ in range(2):
            await Reindexer(bench.index, bench.preparer).step(LOCAL)
            assert {"old", "new"} == await match_words(bench, "паводка")
            assert {"old"} == await match_words(bench, "рынка") == await match_words(bench, "дня")


async def test_a_record_written_meanwhile_stays_as_written(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between reading and writing a batch is kept, and the rest of the batch is prepared again."""
    async with workbench(new_folder()) as bench:
        await bench.add(LOCAL, [make_record("a", "The pump leaks."), make_record("b", "The boat sails.")])
        reindexer, prepare_records = Reindexer(bench.index, bench.preparer), bench.preparer.prepare

        async def overtake(records, contexts=None, *, cut=None, embedded=False):
            ready = await prepare_records(records, contexts, cut=cut, embedded=embedded)
            await bench.index.upsert(LOCAL, NAME, await prepare_records([make_record("a", "The pump is repaired.")]))
            return ready

        monkeypatch.setattr(bench.preparer, "prepare", overtake)
        step = await reindexer.step(LOCAL)

        assert (2, "b") == (step.records, step.after)
        assert ["The pump is repaired.", "The boat sails."] == [
            record.text for record in await bench.index.get(LOCAL, NAME, ["a", "b"])
        ]


@pytest.mark.parametrize("limit", [0, 65, -1])
async def test_a_batch_is_bounded(new_folder: Callable[[], Path], limit: int) -> None:
    """A step takes between one and 64 records."""
    async with workbench(new_folder()) as bench:
        with pytest.raises(InvalidRequest, match="between 1 and 64"):
            await Reindexer(bench.index, bench.preparer).step(LOCAL, limit=limit)


async def test_the_two_messages_before_are_found_in_the_batch_and_in_the_index(
    new_folder: Callable[[], Path],
) -> None:
    """A message knows those before it in its session; a first message and a document have no context."""
    async with workbench(new_folder()) as bench:
        said = [make_record(f"m{at}", f"Message {at}.", session="s", position=at) for at in range(5)]
        await bench.add(LOCAL, [*said[:3], make_record("x", "Elsewhere.", session="t", position=2)])
        contexts = MessageContexts(bench.index, bench.preparer.vectors)

        found = await contexts.find(LOCAL, NAME, [*said[3:], said[0], make_record("d", "A document.")])

    assert {"m3": "Message 1.\nMessage 2.", "m4": "Message 2.\nMessage 3."} == found


async def test_statements_of_one_message_are_context_together(new_folder: Callable[[], Path]) -> None:
    """In the batch and in the index; of those, each reader is shown what they may read."""
    async with workbench(new_folder()) as bench:
        said = [make_record(name, f"I like {name}.", session="s", position=1) for name in ("cake", "tea")]
        secret = make_record("x", "I stole it.", session="s", position=1, acl=("user:local",))
        after = make_record("z", "Both.", session="s", position=2)
        contexts = MessageContexts(bench.index, bench.preparer.vectors)
        before = await contexts.find(LOCAL, NAME, [*said, secret, after])
        await bench.add(LOCAL, [*said, secret])

        assert {"z": "I like cake. I like tea."} == before == await contexts.find(LOCAL, NAME, [after])


async def test_a_message_that_its_readers_may_not_read_is_no_context(new_folder: Callable[[], Path]) -> None:
    """Vectors of a public message do not depend on a private one before it."""
    async with workbench(new_folder()) as bench:
        private = make_record("m0", "The code is 1234.", session="s", position=0, acl=("user:local",))
        await bench.add(LOCAL, [private])
        contexts = MessageContexts(bench.index, bench.preparer.vectors)
        public = make_record("m1", "Fine.", session="s", position=1)

        assert {} == await contexts.find(LOCAL, NAME, [public])
        assert {} == await contexts.find(LOCAL, NAME, [private, public])
        assert {"m1": "The code is 1234."} == await contexts.find(LOCAL, NAME, [replace(public, acl=private.acl)])


def test_an_interrupted_reindex_continues_where_it_ended(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that says where is for its owner alone, and is gone afterwards."""
    folder, asked = new_folder(), list[str]()

    def run(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(app, ["--home", str(folder / "store"), *words])
        assert code == found.exit_code, found.output
        return found.stdout

    (folder / "pumps.jsonl").write_text(
        "\n".join(json.dumps({"id": f"r{at:03d}", "text": f"Pump {at} leaks"}) for at in range(100))
    )
    store, step = folder / "store", Reindexer.step
    run("ingest", str(folder / "pumps.jsonl"))

    async def break_off(self: Reindexer, scope: Scope, *, after: str = "", **other: Any) -> ReindexStep:
        asked.append(after)
        if len(asked) == 2:
            raise SourceUnavailable("the lights went out")
        return await step(self, scope, after=after, **other)

    monkeypatch.setattr(Reindexer, "step", break_off)
    run("reindex", code=3)
    state = store / "reindex.json"
    assert 0o600 == state.stat().st_mode & 0o777

    assert {"records": 100} == json.loads(run("reindex", "--json"))
    assert ["", "r063", "r063", "r099"] == asked
    assert not state.exists()
