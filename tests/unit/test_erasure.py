"""Forgetting: what is named, what repeats it, and every copy of its text, in every file of a store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from contexture import ChatRequest, Contexture, Settings
from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.store_audit import audit_folder
from contexture.answer.route import ModelRoute
from contexture.builders.turn.summary import SUMMARY_TYPE
from contexture.conversation import MEMORIES_COLLECTION, Memory
from contexture.documents import Page
from contexture.erasure.request import ForgetRequest
from contexture.errors import InvalidRequest, NotFound
from contexture.news.articles import Article
from contexture.pages.values import Document
from contexture.retrieval.encoders import Encoders
from contexture.testing.doubles import NOON, FixedClock, ScriptedChatModel
from contexture.types import PUBLIC, Record, Scope
from contexture.workspace import Block, BlockType
from support.workbench import Parts

WORD = "zebracorn"
MEMORIES = MEMORIES_COLLECTION


@asynccontextmanager
async def engine(folder: Path, **changes: Any) -> AsyncIterator[Contexture]:
    """An engine over doubles, whose clock stands still."""
    speakers = Parts().encoders
    store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=speakers.vectors, threads=1))
    opened = Contexture(Settings(home=folder, **changes), store, speakers, FixedClock())
    try:
        yield opened
    finally:
        await opened.close()


def traces(folder: Path, word: str = WORD) -> list[str]:
    """The files that hold a word, in any case, in their bytes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [str(path.relative_to(folder)) for path in files if word.encode() in path.read_bytes().lower()]


async def say(
    ctx: Contexture,
    text: str,
    *,
    session: str = "s",
    message_id: str = "",
    minutes: int = 0,
    scope: Scope | None = None,
) -> Any:
    """Send a message to a session and deliver its memories."""
    request = ChatRequest(message=text, session_id=session, message_id=message_id)
    doing = ctx.answer_once if message_id else ctx.chat
    answer = await doing.run(request, scope=scope or ctx.scope, now=NOON + timedelta(minutes=minutes))
    await ctx.outbox.drain()
    return answer


async def memories(ctx: Contexture) -> dict[str, Record]:
    """Every memory of the engine's user."""
    found = await ctx.index.scroll(ctx.scope, MEMORIES, limit=500)
    return {record.id: record for record in found}


# --- memories, messages, answers ---


async def test_a_forgotten_memory_leaves_no_trace(new_folder: Callable[[], Path]) -> None:
    """Its message, the answer that repeated it, their builds and the stored reply go with it, from every file."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await say(ctx, f"My dog is called {WORD}")
        answer = await say(ctx, "What is my dog called?", session="t", message_id="m")
        assert WORD in answer.reply

        (memory_id,) = {each.memory_id for each in answer.citations}
        receipt = await ctx.forget(ForgetRequest(ids=(memory_id,), collection=MEMORIES))

        assert {"memories": 1, "session events": 2, "builds": 2, "replies": 1} == {
            place: len(ids) for place, ids in receipt.removed.items()
        }
        assert "backups, until they are replaced" in receipt.out_of_reach
        assert [] == traces(folder)
        with pytest.raises(NotFound):
            await ctx.answer_once.find("m", scope=ctx.scope)
        again = await say(ctx, "What is my dog called?", session="u", minutes=1)
        assert WORD not in json.dumps(again.to_dict())
    assert [] == traces(folder)


async def test_an_answer_about_something_else_stays(new_folder: Callable[[], Path]) -> None:
    """An answer whose prompt held the memory, but which shares no word with it, is no copy of it; the id goes."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await say(ctx, f"My dog is called {WORD}")
        ctx.__dict__["chat"] = replace(ctx.chat, route=ModelRoute({"m": ScriptedChatModel(["Sunny."])}))
        answer = await say(ctx, "My dog wants out, so how is the weather?", session="t", minutes=1)
        assert answer.citations

        await ctx.forget({"ids": [answer.citations[0].memory_id], "collection": MEMORIES})

        assert ["user", "assistant"] == [
            each.message["role"] for each in await ctx.sessions.list_events(ctx.scope, "t")
        ]
    async with engine(folder):
        assert [] == audit_folder(folder, answer.citations[0].memory_id)


async def test_what_waits_in_the_outbox_is_forgotten(new_folder: Callable[[], Path]) -> None:
    """A memory that was not delivered yet is not delivered later."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await ctx.chat.run(ChatRequest(message=f"My dog is called {WORD}", session_id="s"), scope=ctx.scope, now=NOON)
        receipt = await ctx.forget(ForgetRequest(session_id="s"))
        await ctx.outbox.drain()

        assert 1 == len(receipt.removed["outbox"])
        assert {} == await memories(ctx)
        assert [] == traces(folder)


async def test_a_session_is_forgotten_with_everything_in_it(new_folder: Callable[[], Path]) -> None:
    """Other sessions of the same user stay."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await say(ctx, f"My dog is called {WORD}")
        await say(ctx, "I live in Lisbon", session="other")
        await ctx.forget(ForgetRequest(session_id="s"))

        assert ["other"] == list(await ctx.sessions.sessions(ctx.scope))
        assert ["I live in Lisbon"] == [record.text for record in (await memories(ctx)).values()]
        assert [] == traces(folder)


async def test_a_single_message_is_forgotten(new_folder: Callable[[], Path]) -> None:
    """The rest of its session stays, and an unknown one is not found."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await say(ctx, "I live in Lisbon")
        answer = await say(ctx, f"My dog is called {WORD}", minutes=1)
        await ctx.forget(ForgetRequest(session_id="s", event_ids=(answer.events[0].id,)))

        assert [] == traces(folder)
        assert "I live in Lisbon" in [
            each.message["content"] for each in await ctx.sessions.list_events(ctx.scope, "s")
        ]
        with pytest.raises(NotFound):
            await ctx.forget(ForgetRequest(session_id="s", event_ids=("nothing",)))


async def test_summaries_are_made_again_without_the_forgotten_message(new_folder: Callable[[], Path]) -> None:
    """A summary of trimmed history loses the message and keeps the others."""
    folder = new_folder()
    async with engine(folder, chat_system="Help.") as ctx:
        texts = ["I live in Lisbon", f"My dog is called {WORD}", *(f"Note {n} about gardening tools" for n in range(6))]
        for at, text in enumerate(texts):
            request = ChatRequest(message=text, session_id="s", max_prompt_tokens=160)
            await ctx.chat.run(request, scope=ctx.scope, now=NOON + timedelta(minutes=at))
        await ctx.outbox.drain()
        before = [each for each in (await memories(ctx)).values() if each.payload.get("type") == SUMMARY_TYPE]
        assert any(WORD in each.text for each in before)

        (memory_id,) = [key for key, each in (await memories(ctx)).items() if each.text == texts[1]]
        receipt = await ctx.forget(ForgetRequest(ids=(memory_id,), collection=MEMORIES))

        after = [each for each in (await memories(ctx)).values() if each.payload.get("type") == SUMMARY_TYPE]
        assert receipt.rebuilt_summaries >= 1
        assert any("Lisbon" in each.text for each in after)
        assert [] == traces(folder)


async def test_a_subject_is_shown_before_it_is_forgotten(new_folder: Callable[[], Path]) -> None:
    """A preview lists what matches and removes nothing; the same request without it removes that."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await say(ctx, f"My dog is called {WORD}")
        await say(ctx, "I live in Lisbon", minutes=1)
        shown = await ctx.forget(ForgetRequest(matching="my dog", preview=True))

        assert any(WORD in text for _, _, text in shown.matched)
        assert not any("Lisbon" in text for _, _, text in shown.matched)
        assert traces(folder)
        receipt = await ctx.forget(ForgetRequest(matching="my dog"))
        assert () == receipt.matched
        assert [] == traces(folder)
        assert "I live in Lisbon" in [record.text for record in (await memories(ctx)).values()]


# --- users and tenants ---


async def test_a_forgotten_user_leaves_what_others_may_read(new_folder: Callable[[], Path]) -> None:
    """Sessions, memories, private records and builds go; shared records and other users' data stay."""
    folder = new_folder()
    anna, boris = Scope(tenant="t", user="anna"), Scope(tenant="t", user="boris")
    async with engine(folder) as ctx:
        await ctx.add(
            [
                Record(id="mine", text=f"Diary of the {WORD}", acl=("user:anna",)),
                Record(id="ours", text="Minutes of the meeting", acl=("user:anna", "user:boris")),
            ],
            scope=anna,
        )
        await say(ctx, f"My dog is called {WORD}", scope=anna)
        await say(ctx, "My cat is called Tom", scope=boris)
        await ctx.build("diary", scope=anna)
        await ctx.forget(ForgetRequest(user_id="anna"), scope=anna)

        assert [] == traces(folder)
        assert [] == list(await ctx.sessions.sessions(anna))
        assert ["s"] == list(await ctx.sessions.sessions(boris))
        assert ["ours"] == [each.id for each in await ctx.index.scroll(anna, "documents")]
        with pytest.raises(InvalidRequest, match="act as user 'anna'"):
            await ctx.forget(ForgetRequest(user_id="anna"), scope=boris)


async def test_a_forgotten_user_leaves_nothing_that_was_stored_for_them(new_folder: Callable[[], Path]) -> None:
    """What others have stored for the user alone goes too, also where the user has an own record of its id."""
    folder = new_folder()
    anna = Scope(tenant="t", user="anna")
    async with engine(folder) as ctx:
        for name in ("anna", "boris", "carl"):
            text = f"The {WORD} as {name} tells it"
            await ctx.add([Record(id="x", text=text, acl=("user:anna",))], scope=Scope(tenant="t", user=name))
        receipt = await ctx.forget(ForgetRequest(user_id="anna"), scope=anna)

        assert [] == traces(folder)
        assert ("x",) == receipt.removed["documents"]


async def test_forgetting_reaches_one_tenant_only(new_folder: Callable[[], Path]) -> None:
    """A record of the same id in another tenant, and builds that cite it, stay."""
    async with engine(new_folder()) as ctx:
        scopes = [Scope(tenant=name, user="anna") for name in ("one", "two")]
        for scope in scopes:
            await ctx.add([Record(id="pump", text="The pump leaks", acl=(PUBLIC,))], scope=scope)
        built = [await ctx.build("pump", scope=scope) for scope in scopes]
        await ctx.forget(ForgetRequest(ids=("pump",)), scope=scopes[0])

        with pytest.raises(NotFound):
            await ctx.capsule(built[0].context.build_id, scope=scopes[0])
        assert await ctx.capsule(built[1].context.build_id, scope=scopes[1])


async def test_an_unreadable_record_cannot_be_used_to_erase_the_builds_of_others(
    new_folder: Callable[[], Path],
) -> None:
    """Deleting or forgetting an id that one may not read removes nothing of those who may."""
    async with engine(new_folder()) as ctx:
        anna, boris = Scope(tenant="t", user="anna"), Scope(tenant="t", user="boris")
        await ctx.add([Record(id="pump", text="The pump leaks", acl=("user:anna",))], scope=anna)
        built = await ctx.build("pump", scope=anna)

        await ctx.delete(["pump"], scope=boris)
        await ctx.forget(ForgetRequest(ids=("pump",)), scope=boris)

        assert await ctx.capsule(built.context.build_id, scope=anna)


# --- records ---


async def test_deleting_a_record_removes_the_builds_of_everybody_who_saw_it(new_folder: Callable[[], Path]) -> None:
    """Not only those of the user who deletes it."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await ctx.add([Record(id="pump", text=f"The pump of the {WORD}", acl=(PUBLIC,))])
        for user in ("anna", "boris"):
            await ctx.build("pump", scope=replace(ctx.scope, user=user))
        await ctx.delete(["pump"])

        assert [] == traces(folder)


async def test_a_build_that_ends_after_its_record_was_deleted_is_not_kept(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered, and leaves nothing behind."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await ctx.add([Record(id="pump", text=f"The pump of the {WORD}", acl=(PUBLIC,))])
        build = ctx._query_builder.build

        async def delete_meanwhile(*given: Any, **named: Any) -> Any:
            built = await build(*given, **named)
            await ctx.delete(["pump"])
            return built

        monkeypatch.setattr(ctx._query_builder, "build", delete_meanwhile)
        built = await ctx.build("pump")

        assert WORD in built.context.text
        assert [] == traces(folder)


async def test_a_revoked_record_withholds_the_builds_that_cite_it(new_folder: Callable[[], Path]) -> None:
    """Whoever lost the right to read a record cannot read it in an old build; whoever has it still can."""
    async with engine(new_folder()) as ctx:
        anna, boris = (replace(ctx.scope, user=user) for user in ("anna", "boris"))
        both = ("user:anna", "user:boris")
        await ctx.add([Record(id="pump", text="The pump leaks", acl=both)], scope=anna)
        built = {scope: (await ctx.build("pump", scope=scope)).context.build_id for scope in (anna, boris)}
        await ctx.add([Record(id="pump", text="The pump leaks", acl=("user:anna",))], scope=anna)

        assert await ctx.capsule(built[anna], scope=anna)
        for read in (ctx.capsule(built[boris], scope=boris), ctx.explain(built[boris], "pump#00000", scope=boris)):
            with pytest.raises(NotFound, match="withheld"):
                await read


async def test_words_of_titles_leave_with_the_record(new_folder: Callable[[], Path]) -> None:
    """Nothing of it is left for the next start to remove, and everything else can still be found."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await ctx.add(
            [
                Record(id="gone", title=f"About the {WORD}", text="The pump leaks", acl=(PUBLIC,)),
                Record(id="left", title="About pumps", text="The pump runs", acl=(PUBLIC,)),
            ]
        )
        receipt = await ctx.forget({"ids": ["gone"]})

        assert ["left"] == [each.record_id for each in (await ctx.search("pump")).found]
        assert not any("index" in each for each in receipt.out_of_reach)
        assert [] == traces(folder)


async def test_cached_vectors_are_forgotten(new_folder: Callable[[], Path]) -> None:
    """A text can be guessed from its vector, so the vector goes with it; others stay cached."""
    folder = new_folder()
    parts = Parts().encoders
    cached = CachedEmbedder(parts._generalist, folder / "embeddings.sqlite")
    encoders = Encoders(specialists={}, generalist=cached)
    await encoders.passages(["one text", "another text"], ["en", "en"])

    await encoders.forget(["one text"])
    await encoders.passages(["one text", "another text"], ["en", "en"])
    cached.close()

    assert (1, 3) == (cached.stats().hits, cached.stats().misses)


@pytest.mark.parametrize("kind", ["records", "memories", "articles", "pages", "blocks", "trash"])
async def test_no_cached_vector_of_a_forgotten_user_is_left(new_folder: Callable[[], Path], kind: str) -> None:
    """Whatever was embedded from what only the user may read is gone from the cache, whichever store it was in."""
    folder = new_folder()
    cached = CachedEmbedder(Parts().foreign, folder / "embeddings.sqlite")
    encoders = Encoders(specialists={}, generalist=cached)
    store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=encoders.vectors, threads=1))
    ctx = Contexture(Settings(home=folder), store, encoders, FixedClock())
    try:
        await _store_two(ctx, kind)
        before = _count_vectors(folder)
        if kind == "trash":
            await ctx.workspace.delete(ctx.scope, ["shed", "lost"], now=NOON)
        await ctx.forget(ForgetRequest(user_id=ctx.scope.user))

        assert 2 <= before
        assert 0 == _count_vectors(folder)
    finally:
        await ctx.close()
        cached.close()


@pytest.mark.parametrize("kind", ["memories", "records"])
async def test_messages_after_a_forgotten_one_are_embedded_without_it(
    new_folder: Callable[[], Path], kind: str
) -> None:
    """Their vectors, stored and cached, are those of a session in which it was never said."""
    said = ["The harbour is closed", f"My dog is a {WORD}", "It sleeps a lot", "It barks", "Ships wait outside"]
    scores: list[list[tuple[str, float]]] = []
    kept: list[set[bytes]] = []
    for texts in (said, [text for text in said if WORD not in text]):
        folder = new_folder()
        cached = CachedEmbedder(Parts().foreign, folder / "embeddings.sqlite")
        encoders = Encoders(specialists={}, generalist=cached)
        store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=encoders.vectors, threads=1))
        ctx = Contexture(Settings(home=folder), store, encoders, FixedClock())
        collection = MEMORIES if kind == "memories" else "documents"
        try:
            await _store_session(ctx, collection, {at: text for at, text in enumerate(said) if text in texts})
            if texts is said:
                (gone,) = [each.id for each in await ctx.index.scroll(ctx.scope, collection) if WORD in each.text]
                await ctx.forget({"ids": [gone], "collection": collection})
            found = await ctx.search("harbour closed sleeps barks ships", collection=collection)
            scores.append(sorted((each.text, each.score) for each in found.found))
            kept.append(_vector_hashes(folder))
        finally:
            await ctx.close()
            cached.close()

    assert 4 == len(scores[0])
    assert scores[0] == scores[1]
    assert kept[0] == kept[1]


async def _store_session(ctx: Contexture, collection: str, texts: dict[int, str]) -> None:
    """Store messages of one session at their positions."""
    if collection == MEMORIES:
        await ctx.memory.remember(
            ctx.scope,
            [Memory(text=text, session_id="s", metadata={"position": at}) for at, text in texts.items()],
        )
        return
    own = (f"user:{ctx.scope.user}",)
    await ctx.add([Record(id=f"m{at}", text=text, acl=own, session="s", position=at) for at, text in texts.items()])


def _vector_hashes(folder: Path) -> set[bytes]:
    with closing(sqlite3.connect(folder / "embeddings.sqlite")) as file:
        return {found for (found,) in file.execute("SELECT hash FROM vectors")}


async def _store_two(ctx: Contexture, kind: str) -> None:
    """Store two texts, because the vector of a single one is cached in memory only."""
    own, texts = (f"user:{ctx.scope.user}",), ["The zebra is in the shed", "The key of the shed is lost"]
    match kind:
        case "records":
            await ctx.add([Record(id=text, text=text, acl=own) for text in (*texts, ". ".join(texts * 9))])
        case "memories":
            await ctx.memory.remember(ctx.scope, [Memory(text=text) for text in texts])
        case "articles":
            articles = [Article(article_id=text, title="Found", text=text, readers=own) for text in texts]
            await ctx.news.add(ctx.scope, articles, now=NOON)
        case "pages":
            pages = tuple(Page(number=number, text=text) for number, text in enumerate(texts, start=1))
            await ctx.pages.add(ctx.scope, replace(_make_document(*pages), readers=own), now=NOON)
        case _:
            blocks = [Block(id=text[-4:], type=BlockType.PAGE, text=text, readers=own) for text in texts]
            await ctx.workspace.put(ctx.scope, blocks, now=NOON)


def _make_document(*pages: Page) -> Document:
    return Document(
        doc_id="d1",
        filename=f"{WORD}.pdf",
        extension="pdf",
        source_path="in.pdf",
        timestamp=NOON,
        pages=pages,
    )


def _count_vectors(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "embeddings.sqlite")) as file:
        return int(file.execute("SELECT count(*) FROM vectors").fetchone()[0])


# --- blocks ---


async def test_a_block_in_the_trash_is_withheld_and_erased_at_purge(new_folder: Callable[[], Path]) -> None:
    """Deleting withholds it from builds at once; purging removes it from every file."""
    folder = new_folder()
    async with engine(folder) as ctx:
        page = Block(id="p", type=BlockType.PAGE, text="Plans")
        note = Block(id="b", type=BlockType.PARAGRAPH, text=f"The {WORD} moves in", parent="p")
        await ctx.workspace.put(ctx.scope, [page, note], now=NOON)
        built = await ctx.build_workspace({"query": "who moves in?", "focus": {"pageId": "p"}})
        assert WORD in built.serialized

        await ctx.workspace.delete(ctx.scope, ["b"], now=NOON)
        with pytest.raises(NotFound):
            await ctx.capsule(built.capsule.build_id)
        assert ["blocks.db"] == [name.removesuffix("-wal") for name in traces(folder)][:1]
        await ctx.workspace.purge(ctx.scope, before=NOON + timedelta(days=1))
        assert [] == [name for name in traces(folder) if not name.startswith("index/")]


async def test_a_forgotten_user_leaves_no_private_block(new_folder: Callable[[], Path]) -> None:
    """Those in the trash go too, with their ids; blocks that others may read stay."""
    folder = new_folder()
    async with engine(folder) as ctx:
        user = ctx.scope.user
        own = [
            Block(id=f"{name}-{WORD}", type=BlockType.PAGE, text=WORD, readers=(f"user:{user}",)) for name in ("a", "b")
        ]
        both = Block(id="c", type=BlockType.PAGE, text="Plans", readers=(f"user:{user}", "user:boris"))
        await ctx.workspace.put(ctx.scope, [*own, both], now=NOON)
        await ctx.workspace.delete(ctx.scope, [own[1].id], now=NOON)
        receipt = await ctx.forget(ForgetRequest(user_id=user))

        assert {own[0].id, own[1].id} == set(receipt.removed["blocks"])
        assert [] == [name for name in traces(folder) if not name.startswith("index/")]
        assert ["c"] == [block.id for block in await ctx.blocks.get(ctx.scope, ["c", own[0].id])]


async def test_a_forgotten_document_leaves_visual_search_at_once(new_folder: Callable[[], Path]) -> None:
    """Its pages are in no file any more, while the store is open."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await ctx.pages.add(ctx.scope, _make_document(Page(number=1, text="The pump leaks")), now=NOON)
        receipt = await ctx.forget(ForgetRequest(ids=("d1",), collection="pages"))

        assert not any("pages_visual" in each for each in receipt.out_of_reach)
        assert [] == traces(folder)


async def test_forgetting_a_block_purges_it_with_all_below(new_folder: Callable[[], Path]) -> None:
    """Without a stay in the trash; what the import remembers of its text goes too."""
    folder = new_folder()
    source = folder.parent / f"{folder.name}-notes"
    source.mkdir()
    (source / "Secret.md").write_text(f"# The {WORD}\n\n- {WORD} moves in\n")
    from contexture.ingestion.blocks.history import ImportHistory
    from contexture.ingestion.blocks.import_source import ImportSource
    from contexture.ingestion.blocks.importer import IMPORTS_FOLDER, WorkspaceWriter, run_import

    async with engine(folder) as ctx:
        writer = WorkspaceWriter(workspace=ctx.workspace, blocks=ctx.blocks, scope=ctx.scope, now=NOON)
        history = ImportHistory(folder / IMPORTS_FOLDER)

        async def load() -> Any:
            return await run_import(
                writer, ImportSource(path=source, now=NOON), tenant=ctx.scope.tenant, memory=history
            )

        await load()
        page = (await ctx.workspace.find_pages(ctx.scope, ["Secret"]))["Secret"]
        receipt = await ctx.forget(ForgetRequest(ids=(page.id,), collection="blocks"))
        assert len(receipt.removed["blocks"]) > 1
        assert 0 == (await load()).added
    async with engine(folder):
        assert [] == traces(folder)


# --- requests ---


@pytest.mark.parametrize(
    "given",
    [{}, {"user_id": "a", "session_id": "b"}, {"event_ids": ("x",)}, {"collection": "c"}, {"matching": "the of"}],
)
def test_a_request_names_one_subject(given: dict[str, Any]) -> None:
    """Nothing, two things, and a subject without a word are refused."""
    with pytest.raises(InvalidRequest):
        ForgetRequest(**given)


async def test_the_audit_finds_what_is_there_and_nothing_else(new_folder: Callable[[], Path]) -> None:
    """It reads rows, logs and files; a part of a longer id is not the id."""
    folder = new_folder()
    async with engine(folder) as ctx:
        await ctx.add([Record(id="pump-1", text="The pump leaks", acl=(PUBLIC,))])
        await ctx.build("pump")

        assert ["truth.sqlite: records"] == [each.place for each in audit_folder(folder, "pump-1")][-1:]
        assert any(each.place.startswith("builds/") for each in audit_folder(folder, "pump-1"))

        assert [] == audit_folder(folder, "ump-1")
        await ctx.forget({"ids": ["pump-1"]})
    async with engine(folder):
        assert [] == audit_folder(folder, "pump-1")
