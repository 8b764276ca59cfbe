"""Batches leave the event loop to others: what is computed about what they bring is computed in other threads."""

from __future__ import annotations

import asyncio
import base64
import functools
import threading

import pytest

from contexture.blocks import records as block_records
from contexture.blocks import workspace as block_workspace
from contexture.ingestion import loader
from contexture.memory import service as memory_service
from contexture.news import articles as news_articles
from contexture.news import store as news_store
from contexture.pages import records as page_records
from contexture.retrieval import prepare, text_facts
from contexture.service import _body_limits
from contexture.service.routes import ingest
from contexture.types import Record

SENTENCES = [f"The pump number {at} leaks, and anna{at}@example.org mends it on Monday. " * 15 for at in range(40)]
ROWS = [{"id": f"n{at}", "text": text} for at, text in enumerate(SENTENCES)]
MEMORIES = {"memories": [{"text": text, "idempotency_key": f"k{at}"} for at, text in enumerate(SENTENCES)]}
FILE = base64.b64encode("\n\n".join(SENTENCES).encode()).decode()

PREPARED = {
    "prepare.split_passages": (prepare, "split_passages"),
    "prepare.detect_language": (prepare, "detect_language"),
    "prepare.hash_words": (prepare, "hash_words"),
    "prepare.weigh_words": (prepare, "weigh_words"),
}
TEXT_FACTS = {"text_facts.simhash": (text_facts, "simhash")}
REMEMBERED = {
    **PREPARED,
    **TEXT_FACTS,
    "check_memories": (memory_service, "check_memories"),
    "plan_writes": (memory_service, "plan_writes"),
}
BATCHES = {
    "records": (
        "/v1/ingest/documents",
        {"records": ROWS},
        {
            **{name: found for name, found in PREPARED.items() if name != "prepare.detect_language"},
            "row_to_record": (ingest, "row_to_record"),
            "loader.detect_language": (loader, "detect_language"),
            "content_key": (loader, "_content_key"),
        },
    ),
    "memories": ("/v1/ingest/memories", MEMORIES, REMEMBERED),
    "remember batch": ("/memory/remember/batch", MEMORIES, REMEMBERED),
    "articles": (
        "/v1/ingest/articles",
        {"articles": ROWS},
        {
            **{name: found for name, found in PREPARED.items() if name != "prepare.detect_language"},
            "row_to_article": (ingest, "row_to_article"),
            "check_articles": (news_store, "check_articles"),
            "make_fingerprint": (news_articles, "make_fingerprint"),
        },
    ),
    "blocks": (
        "/v1/ingest/blocks",
        {"blocks": ROWS},
        {
            **PREPARED,
            "check_blocks": (block_workspace, "check_blocks"),
            "block_to_record": (block_workspace, "block_to_record"),
            "blocks.scan_text": (block_records, "scan_text"),
            "blocks.simhash": (block_records, "simhash"),
        },
    ),
    "pages": (
        "/v1/ingest/documents",
        {"files": [{"filename": "pumps.txt", "content": FILE}]},
        {
            **{
                name: PREPARED[name] for name in PREPARED.keys() - {"prepare.detect_language", "prepare.split_passages"}
            },
            **TEXT_FACTS,
            "b64decode": (ingest, "_decode_upload"),
            "pages.detect_language": (page_records, "detect_language"),
            "compress_text": (page_records, "compress_text"),
        },
    ),
}


class Threads:
    """Remembers in which threads functions ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: dict[str, set[int]] = {}
        self._patch = monkeypatch

    def watch(self, label: str, owner: object, name: str) -> None:
        """Remember where this function runs from now on."""
        found = getattr(owner, name)

        @functools.wraps(found)
        def noted(*words, **named):
            self.ran.setdefault(label, set()).add(threading.get_ident())
            return found(*words, **named)

        self._patch.setattr(owner, name, noted)


@pytest.mark.parametrize("kind", BATCHES)
async def test_nothing_about_a_batch_is_computed_on_the_event_loop(engine, client, monkeypatch, kind):
    """Segmentation, languages, redaction, hashes, tokens and checks of every batch run in other threads."""
    path, body, functions = BATCHES[kind]
    threads = Threads(monkeypatch)
    for label, (owner, name) in functions.items():
        threads.watch(label, owner, name)
    threads.watch("redactor", type(engine._redactor), "scan")
    for counter in engine._preparer.counters:
        threads.watch("counter", counter, "count")
    answer = await client.post(path, json=body)

    assert 200 == answer.status_code
    assert not answer.json().get("failed")
    assert {*functions, "redactor", "counter"} == set(threads.ran)
    assert set() == {label for label, ran in threads.ran.items() if threading.get_ident() in ran}


async def test_a_large_body_is_searched_for_brackets_in_another_thread(client, monkeypatch):
    """Before it is parsed."""
    threads = Threads(monkeypatch)
    threads.watch("brackets", _body_limits, "is_nested_deeper")
    answer = await client.post("/v1/ingest/documents", json={"records": [{"id": "a", "text": "pump " * 100_000}]})

    assert 200 == answer.status_code
    assert {"brackets"} == set(threads.ran)
    assert threading.get_ident() not in threads.ran["brackets"]


async def test_a_single_memory_is_prepared_at_once(client, monkeypatch):
    """A change of threads would take longer than the work."""
    threads = Threads(monkeypatch)
    for label, (owner, name) in REMEMBERED.items():
        threads.watch(label, owner, name)
    answer = await client.post("/memory/remember", json={"text": "The pump leaks."})

    assert 200 == answer.status_code
    assert {threading.get_ident()} == set().union(*threads.ran.values())


async def test_a_batch_whose_caller_went_away_leaves_nothing(engine, monkeypatch):
    """What is prepared is written when all of it is, and a cancelled caller writes nothing."""
    begun, go, scan = threading.Event(), threading.Event(), type(engine._redactor).scan

    def hold(redactor, text, lang):
        begun.set()
        go.wait(timeout=30)  # so that work on the wrong thread fails instead of hanging
        return scan(redactor, text, lang)

    monkeypatch.setattr(type(engine._redactor), "scan", hold)
    batch = [Record(id=f"r{at}", text=text, acl=("public",)) for at, text in enumerate(SENTENCES)]
    task = asyncio.create_task(engine.add(batch))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    before = await engine.index.get(engine.scope, engine.settings.collection, [each.id for each in batch])
    await engine.add(batch)
    after = await engine.index.get(engine.scope, engine.settings.collection, [each.id for each in batch])

    assert (0, len(batch)) == (len(before), len(after))


async def test_a_batch_is_prepared_as_its_records_are_one_by_one(engine):
    """In another thread, in pieces, with the same result."""
    batch = [
        Record(id=f"r{at}", text=text[: 30 * at], title="Pump", acl=("public",)) for at, text in enumerate(SENTENCES)
    ]
    together = await engine._preparer.prepare(batch)
    alone = [(await engine._preparer.prepare([each]))[0] for each in batch]

    assert repr(alone) == repr(together)
