"""Large batches are found by words at once; their vectors follow from the index's backlog, whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from contexture import Contexture, Settings
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.documents import Page
from contexture.file_loading import FileLoader
from contexture.ledger import Trace
from contexture.news.articles import Article, FoundArticle, NewsQuestion
from contexture.pages.values import Document
from contexture.ports import VectorBacklog
from contexture.retrieval.compute_thread import RequestsInProgress
from contexture.retrieval.encoders import Encoders
from contexture.testing.doubles import NOON, FixedClock, HashEmbedder
from contexture.types import PUBLIC, Matrix, Record, Scope

MANY = 90  # passages, more than are embedded at once
ANNA, EVE = Scope(tenant="acme", user="anna"), Scope(tenant="acme", user="eve")


class RecordedEmbedder(HashEmbedder):
    """Remembers what it embedded and was told to forget."""

    def __init__(self, dimensions: int, name: str) -> None:
        super().__init__(dimensions, name)
        self.embedded: list[str] = []
        self.forgotten: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """The rows of the double."""
        self.embedded += texts
        return await super().embed(texts)

    async def forget(self, texts: Sequence[str]) -> None:
        """Remember the texts."""
        self.forgotten += texts


@asynccontextmanager
async def engine(folder: Path, english: HashEmbedder | None = None) -> AsyncGenerator[Contexture]:
    """An engine over doubles whose large batches are embedded later, when the test says so."""
    encoders = Encoders(
        specialists={"en": english or HashEmbedder(16, "hash-en")}, generalist=HashEmbedder(12, "hash-any")
    )
    store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=encoders.vectors, threads=1))
    opened = Contexture(Settings(home=folder), store, encoders, FixedClock())
    opened._preparer.defers = True  # pyright: ignore[reportPrivateUsage] - `start` would embed at once
    try:
        yield opened
    finally:
        await opened.close()


def records(count: int = MANY, *, acl: tuple[str, ...] = (PUBLIC,), name: str = "r") -> list[Record]:
    """Short records about pumps."""
    return [Record(id=f"{name}{at:03d}", text=f"The pump number {at} leaks oil.", acl=acl) for at in range(count)]


async def rank(ctx: Contexture, question: str, scope: Scope | None = None) -> list[tuple[str, float]]:
    """The ids and scores of a search that has nothing to excuse."""
    found = await ctx.search(question, scope=scope)
    assert () == found.degradations
    return [(each.id, each.score) for each in found.found]


async def test_words_are_found_at_once_and_the_answer_says_what_has_no_vector(
    new_folder: Callable[[], Path],
) -> None:
    """Neither the answer nor its successor after the vectors came is taken from a cache."""
    async with engine(new_folder()) as ctx:
        await ctx.add(records())
        before = await ctx.search("pump 7")
        built = await ctx.build("pump 7")
        assert MANY == await ctx.embed_rest()

        assert "r007#00000" == before.found[0].id
        assert "cosine" not in before.found[0].signals
        assert [f"{MANY} passages are found by words only until their vectors are computed"] == [
            each.reason for each in before.degradations
        ]
        assert "vectors" in [each.source for each in built.ledger.degradations]
        after = await ctx.search("pump 7")
        assert () == after.degradations
        assert "cosine" in after.found[0].signals


async def test_embedding_later_gives_what_embedding_at_once_gives(new_folder: Callable[[], Path]) -> None:
    """Records, messages after other messages, and pages have the same vectors, so the same scores."""
    chat = [
        Record(id=f"m{at:03d}", text=f"I saw pump {at % 7}.", acl=(PUBLIC,), session="s", position=at)
        for at in range(MANY)
    ]
    async with engine(new_folder()) as later, engine(new_folder()) as once:
        once._preparer.defers = False  # pyright: ignore[reportPrivateUsage]
        for ctx in (later, once):
            await ctx.add([*records(), *chat, Record(id="long", text="A pump leaks. " * 90, acl=(PUBLIC,))])
            await ctx.pages.add(ctx.scope, document(), now=NOON)
        assert 0 < await later.embed_rest()

        for question in ("pump 7 leaks", "who saw it?"):
            assert await rank(once, question) == await rank(later, question)
        for text, visual in ((True, False), (False, True)):
            found = [
                await ctx.pages.find(ctx.scope, "valve 3 of the pump", k=5, text=text, visual=visual, trace=Trace())
                for ctx in (once, later)
            ]
            assert found[0]
            assert [(each.page, each.score) for each in found[0]] == [(each.page, each.score) for each in found[1]]


def document() -> Document:
    """A document of many pages."""
    pages = [Page(number=at, text=f"# Pump {at}\n\nValve {at} of the pump is closed.") for at in range(1, MANY)]
    return Document(
        doc_id="d", filename="pumps.pdf", extension="pdf", source_path="pumps.pdf", timestamp=NOON, pages=tuple(pages)
    )


def articles(*, readers: tuple[str, ...] = (PUBLIC,), name: str = "a") -> list[Article]:
    """Articles about a strike, some copies of another, one without a date, and one of several passages."""
    made = [
        Article(
            article_id=f"{name}{at:03d}",
            title=f"Strike at port {at}",
            text=f"The dockers of port number {at} {'walk out and ' * (at % 2)}want more money.",
            published=NOON - timedelta(hours=at + 1),
            readers=readers,
        )
        for at in range(MANY)
    ]
    copies = [replace(made[4], article_id=f"{name}copy{at}") for at in range(3)]
    long = replace(made[7], article_id=f"{name}long", text="Crews of ship 7 are on strike in their harbour. " * 40)
    return [*made, *copies, long, replace(long, article_id=f"{name}undated", text="A museum opens.", published=None)]


async def list_newest(ctx: Contexture, scope: Scope, k: int, since: timedelta | None = None) -> Sequence[FoundArticle]:
    """The newest articles, without any loss."""
    trace = Trace()
    asked = NewsQuestion(text="latest news", since=None if since is None else NOON - since)
    found = await ctx.news.find(scope, asked, k=k, rerank=True, trace=trace)
    assert () == trace.finish(()).degradations
    return found


async def test_articles_are_found_by_words_and_by_age_before_they_have_vectors(new_folder: Callable[[], Path]) -> None:
    """Lists of the newest are complete with no, some and all vectors, and an answer says what it may have missed."""
    async with engine(new_folder()) as ctx:
        await ctx.news.add(ANNA, articles(), now=NOON)
        waiting = await ctx.count_unembedded("articles", scope=ANNA)
        command = await ctx.build_command({"raw_command": "/ask port number 7"}, scope=ANNA)
        assert ctx.backfill is not None
        listed: list[list[Sequence[FoundArticle]]] = []
        for embed in (None, ctx.backfill.step, ctx.embed_rest):
            if embed is not None:
                await embed()
            many = timedelta(hours=20)
            listed.append([await list_newest(ctx, ANNA, 9), await list_newest(ctx, ANNA, 50, many)])

        assert MANY < waiting
        assert "a007" in [each.article_id for each in command.retrieval.docs]
        assert [f"{waiting} passages are found by words only until their vectors are computed"] == [
            each.reason for each in command.ledger.degradations if each.source == "vectors"
        ]
        newest = [each.article.article_id for each in listed[0][0]]
        assert ["a000", "a001", "a002", "a003"] == newest[:4]
        assert "aundated" == listed[0][1][-1].article.article_id
        assert {len(each.candidates) for each in listed[0][0]} > {1}
        assert listed[2] == listed[1] == listed[0]
        after = await ctx.build_command({"raw_command": "/ask port number 7"}, scope=ANNA)
        assert "vectors" not in [each.source for each in after.ledger.degradations]


async def test_hidden_articles_without_vectors_change_no_list(new_folder: Callable[[], Path]) -> None:
    """Neither which articles are listed nor what is said about them."""
    async with engine(new_folder()) as ctx:
        await ctx.news.add(EVE, articles(name="e")[:20], now=NOON)
        before = await list_newest(ctx, EVE, 9)
        await ctx.news.add(ANNA, articles(readers=("user:anna",)), now=NOON)

        assert before == await list_newest(ctx, EVE, 9)
        assert 0 == await ctx.count_unembedded("articles", scope=EVE)
        assert before != await list_newest(ctx, ANNA, 9)


async def test_an_erased_article_leaves_the_backlog(new_folder: Callable[[], Path]) -> None:
    """Nothing of it is embedded any more."""
    english = RecordedEmbedder(16, "hash-en")
    async with engine(new_folder(), english) as ctx:
        await ctx.news.add(ANNA, articles(), now=NOON)
        waiting = await ctx.count_unembedded("articles", scope=ANNA)
        await ctx.news.remove(ANNA, ["a005"])

        assert waiting - 1 == await ctx.count_unembedded("articles", scope=ANNA)
        assert waiting - 1 == await ctx.embed_rest()
        assert not [text for text in english.embedded if "port number 5 " in text]


async def test_loading_files_of_articles_embeds_them_before_it_ends(new_folder: Callable[[], Path]) -> None:
    """After they were found by words, with progress of its own."""
    folder, seen = new_folder(), list[tuple[str, int, int]]()
    rows = [
        {"id": f"n{at}", "title": f"Strike {at}", "text": f"The dockers of port {at} stop work. " * 30,
         "published": "2026-03-01T09:00:00Z"}
        for at in range(40)
    ]  # fmt: skip
    path = folder / "news.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    async with engine(new_folder()) as ctx:
        ctx._preparer.defers = False  # pyright: ignore[reportPrivateUsage]

        def follow(name: str, done: int, total: int) -> None:
            seen.append((name, done, total))

        loader = FileLoader(engine=ctx, scope=ANNA, progress=follow)
        report = await loader.load([path], kind="articles")

        assert 40 == report.added
        assert 0 == await ctx.count_unembedded("articles", scope=ANNA)
        assert {"embedding passages"} < {name for name, _, _ in seen}


async def test_pages_are_seen_by_a_new_embedder_after_they_are_indexed_again(new_folder: Callable[[], Path]) -> None:
    """Visual search has vectors of its own, which are computed again from the stored pages."""
    folder, counts = new_folder(), list[int]()

    async def count_seen(ctx: Contexture) -> int:
        asked = "valve 3 of the pump"
        return len(await ctx.pages.find(ctx.scope, asked, k=5, text=False, visual=True, trace=Trace()))

    async with engine(folder, HashEmbedder(16, "old-en")) as ctx:
        await ctx.pages.add(ctx.scope, document(), now=NOON)
        await ctx.embed_rest()
        counts.append(await count_seen(ctx))
    async with engine(folder, HashEmbedder(24, "new-en")) as ctx:
        step = await ctx.reindexer.step(ctx.scope)
        while not step.done:
            step = await ctx.reindexer.step(ctx.scope, collection=step.collection, after=step.after)
        counts.append(await count_seen(ctx))

        assert [5, 5] == counts
        assert {"new-en", "hash-any@en"} == set(await ctx.index.spaces(ctx.scope, "pages_visual") or ())


async def test_what_waits_survives_a_restart_and_is_embedded_once(new_folder: Callable[[], Path]) -> None:
    """A store that is closed in the middle goes on where it stopped."""
    folder, first, second = new_folder(), RecordedEmbedder(16, "hash-en"), RecordedEmbedder(16, "hash-en")
    async with engine(folder, first) as ctx:
        await ctx.add(records())
        assert ctx.backfill is not None
        batch = await ctx.backfill.step()
        assert batch is not None
        assert 0 < len(batch.passages) < MANY == batch.waiting
    async with engine(folder, second) as ctx:
        await ctx.embed_rest()

        assert sorted(each.text for each in records()) == sorted(first.embedded + second.embedded)
        assert "r007#00000" == (await rank(ctx, "The pump number 7 leaks oil."))[0][0]


async def test_tenants_take_turns(new_folder: Callable[[], Path]) -> None:
    """A small tenant waits for one batch of a large one, not for all of them."""
    async with engine(new_folder()) as ctx:
        big, small = Scope(tenant="big", user="b"), Scope(tenant="small", user="s")
        await ctx.add(records(400), scope=big)
        await ctx.add(records(70), scope=small)
        backlog, served = ctx.index, list[int]()
        assert isinstance(backlog, VectorBacklog)
        assert ctx.backfill is not None
        for _ in range(6):
            await ctx.backfill.step()
            served.append(await backlog.count_unembedded(small, "documents"))

        assert 0 == served[-1] < await backlog.count_unembedded(big, "documents")


async def test_only_what_the_asker_may_read_is_counted(new_folder: Callable[[], Path]) -> None:
    """Hidden records without vectors change nothing about an answer."""
    async with engine(new_folder()) as ctx:
        await ctx.add([Record(id="open", text="The pump leaks.", acl=(PUBLIC,))], scope=EVE)
        before = await ctx.search("pump", scope=EVE)
        await ctx.add(records(acl=("user:anna",)), scope=ANNA)

        assert before.found == (await ctx.search("pump", scope=EVE)).found
        assert () == (await ctx.search("pump", scope=EVE)).degradations
        assert (await ctx.search("pump", scope=ANNA)).degradations


async def test_erased_records_leave_the_backlog_and_the_cache(new_folder: Callable[[], Path]) -> None:
    """Also those that are erased while they are embedded."""
    english = RecordedEmbedder(16, "hash-en")
    async with engine(new_folder(), english) as ctx:
        await ctx.add(records())
        await ctx.delete(["r000"])
        backlog, embed = ctx.index, english.embed
        assert isinstance(backlog, VectorBacklog)
        assert MANY - 1 == await backlog.count_unembedded(ctx.scope, "documents")

        async def erase_meanwhile(texts: Sequence[str]) -> Matrix:
            english.embed = embed
            rows = await embed(texts)
            await ctx.delete(["r001"])
            return rows

        english.embed = erase_meanwhile
        await ctx.embed_rest()

        assert ["The pump number 1 leaks oil."] == english.forgotten
        assert "The pump number 0 leaks oil." not in english.embedded
        assert {"r000", "r001"}.isdisjoint(name.split("#")[0] for name, _ in await rank(ctx, "pump"))


async def test_small_batches_are_embedded_before_they_are_acknowledged(new_folder: Callable[[], Path]) -> None:
    """As a memory or a chat turn is."""
    async with engine(new_folder()) as ctx:
        await ctx.add(records(64))

        assert 0 == await ctx.embed_rest()
        assert await rank(ctx, "pump")


async def test_an_open_store_embeds_in_the_background(new_folder: Callable[[], Path]) -> None:
    """Nobody has to ask for it, and closing the store does not wait for all of it."""
    async with engine(new_folder()) as ctx:
        assert ctx.backfill is not None
        await ctx.add(records())
        ctx.backfill.start()
        backlog = ctx.index
        assert isinstance(backlog, VectorBacklog)
        while await backlog.count_unembedded(ctx.scope, "documents"):  # noqa: ASYNC110 - the writer is not ours
            await asyncio.sleep(0)

        assert await rank(ctx, "pump")


async def test_embedding_in_the_background_gives_way_to_other_tenants(new_folder: Callable[[], Path]) -> None:
    """After a batch it waits while requests of others are in progress, and not while there are none."""
    now, slept = 0.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(seconds)

    class SlowEmbedder(HashEmbedder):
        async def embed(self, texts: Sequence[str]) -> Matrix:
            nonlocal now
            now += 0.2
            return await super().embed(texts)

    async with engine(new_folder(), SlowEmbedder(16, "hash-en")) as ctx:
        await ctx.add(records())
        backfill = ctx.backfill
        assert backfill is not None
        backfill._requests = RequestsInProgress(lambda: now, sleep)  # pyright: ignore[reportPrivateUsage]
        for tenant in (ctx.scope.tenant, "other"):
            with backfill._requests.enter(tenant):  # pyright: ignore[reportPrivateUsage]
                before = len(slept)
                await backfill._step_behind_others()  # pyright: ignore[reportPrivateUsage]
                assert (len(slept) > before) == (tenant == "other")
