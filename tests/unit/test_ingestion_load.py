"""Loading: repeatable, resumable, and never stopped by one bad record."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as changed

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import SourceUnavailable
from contexture.ingestion.files import SourcedRecord
from contexture.ingestion.loader import batch_records, load_records
from contexture.retrieval.encoders import Encoders
from contexture.types import Equals, FieldType, Record, Scope


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Paths are named as they are given: the tests stand in their folder and name it by a dot."""
    monkeypatch.chdir(tmp_path)


class Letters:
    """An embedder that counts letters; enough to store and find texts."""

    dimensions = 32

    def __init__(self, name):
        self.name = name

    async def embed(self, texts):
        """A row of letter counts per text."""
        rows = np.ones((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            np.add.at(row, [ord(letter) % self.dimensions for letter in text[:500]], 1)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def calibrate(self, cosine):
        """Cosines as they are."""
        return np.clip(cosine, 0, 1)


@asynccontextmanager
async def opened(home):
    """An engine over a real store in `home`."""
    speakers = Encoders(specialists={"en": Letters("own")}, generalist=Letters("all"))
    store = await EmbeddedIndex.open(home, EmbeddedOptions(vectors=speakers.vectors))
    engine = Contexture(Settings(home=home), store, speakers)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def engine(tmp_path):
    """A real store with a toy embedder."""
    async with opened(tmp_path / "home") as found:
        yield found


def rows(path, *found):
    """A JSONL file with these rows; a text is written as it stands."""
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in found))
    return path


def counts(report):
    """Read, added, unchanged, duplicates, failed."""
    return (report.read, report.added, report.unchanged, report.duplicates, len(report.failed))


async def test_loading_twice_changes_nothing(engine, tmp_path):
    """The second load finds everything unchanged, metadata included."""
    path = rows(
        tmp_path / "a.jsonl",
        {"id": "1", "text": "The pump is broken.", "title": "Pump", "date": "2026-01-02T03:04:05.678901Z"},
        {"id": "2", "text": "Насос сломан.", "payload": {"deep": [1, {"x": None}]}, "acl": ["public", "user:anna"]},
        {"id": "3", "text": "", "title": "Only a title"},
        {"id": "4", "text": "half a pair \ud83d"},
    )
    first = await load_records(engine, [path], collection="documents")
    version = await engine.index.version(engine.scope, "documents")
    second = await load_records(engine, [path], collection="documents")

    assert (4, 4, 0, 0, 0) == counts(first)
    assert (4, 0, 4, 0, 0) == counts(second)
    assert version == await engine.index.version(engine.scope, "documents")


@pytest.mark.parametrize(
    "change",
    [
        {"text": "The pump works."}, {"title": "Other"}, {"date": "2026-01-03"}, {"acl": ["public", "user:anna"]},
        {"lang": "de"}, {"source": "mail"}, {"kind": "note"}, {"session": "s"}, {"position": 2}, {"stars": 4},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
async def test_any_change_is_loaded(engine, tmp_path, change):
    """A record whose text, title or metadata changed replaces the stored one."""
    row = {"id": "1", "text": "The pump is broken.", "title": "Pump", "date": "2026-01-02", "stars": 5}
    await load_records(engine, [rows(tmp_path / "a.jsonl", row)], collection="documents")
    report = await load_records(engine, [rows(tmp_path / "a.jsonl", {**row, **change})], collection="documents")

    assert (1, 1, 0, 0, 0) == counts(report)


async def test_again_writes_what_is_unchanged(engine, tmp_path):
    """`again` is for new rules or models: everything is prepared anew."""
    path = rows(tmp_path / "a.jsonl", {"id": "1", "text": "a"})
    await load_records(engine, [path], collection="documents")

    assert (1, 1, 0, 0, 0) == counts(await load_records(engine, [path], collection="documents", again=True))


async def test_copies_within_a_run_are_skipped(engine, tmp_path):
    """The same text under another id, source and time is one record; other readers or sessions make it another."""
    text = {"text": "The pump is broken."}
    path = rows(
        tmp_path / "a.jsonl",
        {"id": "1", **text},
        {"id": "2", **text, "source": "mail", "date": "2026-01-01"},
        {"id": "3", **text, "acl": ["user:local"]},
        {"id": "4", **text, "session": "s", "position": 1},
        {"id": "5", "text": ""},
        {"id": "6", "text": ""},
    )

    assert (6, 5, 0, 1, 0) == counts(await load_records(engine, [path], collection="documents"))


async def test_a_title_without_text_can_be_found(engine, tmp_path):
    """The title is then the text, also for the next load; a row with neither is stored with a warning."""
    path = rows(tmp_path / "a.jsonl", {"id": "t", "title": "Kumquat jam", "text": " "}, {"id": "n", "text": ""})
    first = await load_records(engine, [path], collection="documents")
    again = await load_records(engine, [path], collection="documents")
    found = await engine.search("kumquat")

    assert ((2, 0), (0, 2)) == ((first.added, first.unchanged), (again.added, again.unchanged))
    assert ["there is neither text nor title, so no search can find it"] == [each.message for each in first.warnings]
    assert [("t#00000", "Kumquat jam")] == [(each.id, each.text) for each in found.found]


async def test_an_id_met_twice_keeps_the_first_and_says_so(engine, tmp_path):
    """Two files may not fight over one id, or loading twice would never settle."""
    path = rows(tmp_path / "a.jsonl", {"id": "1", "text": "first"}, {"id": "1", "text": "second"})
    report = await load_records(engine, [path], collection="documents")
    (stored,) = await engine.index.get(engine.scope, "documents", ["1"])

    assert ["a.jsonl:2: id '1' was read before, at a.jsonl:1; the first is kept"] == [str(p) for p in report.failed]
    assert stored.text == "first"


async def test_bad_rows_are_reported_and_the_rest_loads(engine, tmp_path):
    """Broken lines, bad dates and missing files cost only themselves."""
    path = rows(
        tmp_path / "a.jsonl", {"id": "1", "text": "a"}, "{", {"id": "3", "text": "c", "date": "soon"}, {"id": "4"}
    )
    report = await load_records(engine, [path, tmp_path / "none"], collection="documents")

    assert (2, 2, 0, 0, 3) == counts(report)
    assert ["a.jsonl:2", "a.jsonl:4", "none"] == [str(p).split(": ")[0] for p in report.failed]
    assert ["a.jsonl:3"] == [str(p).split(": ")[0] for p in report.warnings]


async def test_a_record_that_may_not_be_replaced_does_not_stop_its_batch(engine, tmp_path):
    """What belongs to others is refused by name, and everything else in the batch is written."""
    theirs = Record(id="2", text="secret", acl=("group:staff",))
    await engine.add([theirs], scope=Scope(tenant="local", user="boris", groups=("staff",)))
    path = rows(tmp_path / "a.jsonl", *({"id": str(n), "text": f"text {n}"} for n in range(1, 4)))
    report = await load_records(engine, [path], collection="documents")

    assert (3, 2, 0, 0, 1) == counts(report)
    assert ["a.jsonl:2: record '2' cannot be written by user 'local'"] == [str(p) for p in report.failed]


async def test_loading_for_others_is_warned_of(engine, tmp_path):
    """A record that its own loader may not read is stored, with a warning."""
    path = rows(tmp_path / "a.jsonl", {"id": "1", "text": "a"})
    report = await load_records(engine, [path], collection="documents", acl=("user:anna",))

    assert (1, 1, 0, 0, 0) == counts(report)
    assert ["a.jsonl:1: user 'local' can neither read nor replace this record"] == [str(p) for p in report.warnings]


async def test_a_failing_batch_is_reported_and_others_go_on(engine, tmp_path, monkeypatch):
    """A store that fails once costs one batch; repeating the load brings it in."""
    path = rows(tmp_path / "a.jsonl", *({"id": str(n), "text": f"text {n}"} for n in range(322)))
    add, calls = engine.add, []

    async def flaky(records, *, collection, scope):
        calls.append(len(records))
        if len(calls) == 2:
            raise SourceUnavailable("the disk coughed")
        return await add(records, collection=collection, scope=scope)

    monkeypatch.setattr(engine, "add", flaky)
    first = await load_records(engine, [path], collection="documents")
    second = await load_records(engine, [path], collection="documents")

    assert (322, 256, 0, 0, 66) == counts(first)
    assert "a.jsonl:257: the disk coughed" == str(first.failed[0])
    assert (322, 66, 256, 0, 0) == counts(second)


async def test_progress_ends_at_the_total(engine, tmp_path):
    """Progress rises to the number of records there are."""
    path = rows(tmp_path / "a.jsonl", *({"id": str(n), "text": f"text {n}"} for n in range(262)), "{")
    told = []
    await load_records(engine, [path], collection="documents", progress=lambda *step: told.append(step))

    assert [("loading", 256, 262), ("loading", 262, 262)] == told


async def test_a_load_of_nothing_makes_the_collection(engine, tmp_path):
    """An empty folder is a collection without records."""
    (tmp_path / "folder").mkdir()
    report = await load_records(engine, [tmp_path / "folder"], collection="empty")

    assert (0, 0, 0, 0, 0) == counts(report)
    assert ["empty"] == [found.name for found in await engine.index.collections(engine.scope)]


async def test_declared_fields_can_be_filtered_on(engine, tmp_path):
    """`group` and every declared payload field may be named in a filter."""
    path = rows(
        tmp_path / "a.jsonl", {"id": "1", "text": "pump", "group": "g", "stars": 5}, {"id": "2", "text": "pumps"}
    )
    await load_records(engine, [path], collection="c", fields={"group": FieldType.KEYWORD, "stars": FieldType.NUMBER})

    for where in (Equals("group", "g"), Equals("stars", 5)):
        found = await engine.search("pump", collection="c", where=where)
        assert ["1"] == [each.record_id for each in found.found]


async def test_a_large_load_is_tidied_up(engine, tmp_path, monkeypatch):
    """After many additions the index is optimised once."""
    path = rows(tmp_path / "a.jsonl", *({"id": str(n), "text": f"text {n}"} for n in range(1_000)))
    calls = []
    optimize = engine.index.optimize

    async def counted():
        calls.append(1)
        await optimize()

    monkeypatch.setattr(engine.index, "optimize", counted)
    await load_records(engine, [path], collection="documents")
    await load_records(engine, [path], collection="documents")

    assert [1] == calls


def test_long_records_make_short_batches():
    """A batch ends when it has enough records or enough characters."""
    short = SourcedRecord(record=Record(id="s", text="x", acl=()), path="p")
    long = replace(short, record=changed(short.record, text="x" * 100_000))

    assert [1, 3, 2] == [len(batch) for batch in batch_records([long, short, short, long, short, short])]
    assert [2, 1] == [len(batch) for batch in batch_records([short, short, short], size=2)]
