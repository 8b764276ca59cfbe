"""Whatever a user has said and stored, forgetting the user leaves none of it, and leaves everybody else's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contexture import ChatRequest, Contexture, Settings
from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.store_backup import back_up
from contexture.conversation import Memory
from contexture.documents import Page, Region, RegionKind
from contexture.erasure.request import ForgetRequest
from contexture.ledger import Trace
from contexture.news.articles import Article
from contexture.pages.values import Document
from contexture.retrieval.encoders import Encoders
from contexture.testing.doubles import NOON, FixedClock
from contexture.types import Collection, Record, Scope
from contexture.workspace import Block, BlockType
from support.workbench import Parts

USERS = {"anna": ("acme", "anna"), "boris": ("acme", "boris"), "namesake": ("other", "anna")}
"""Tenant and user of each: one is forgotten, one is in the same tenant, one has the same name elsewhere."""

KINDS = ("record", "memory", "message", "question", "waiting", "article", "page", "block", "trash", "build")
EXAMPLES = count()


@dataclass(frozen=True)
class Deed:
    """Someone stores, says or asks something that nobody else may read."""

    who: str
    kind: str
    session: str = "s"

    def scope(self, example: int) -> Scope:
        """Whose deed it is; every example has tenants of its own."""
        tenant, user = USERS[self.who]
        return Scope(tenant=f"{tenant}-{example}", user=user)


def deeds() -> st.SearchStrategy[list[Deed]]:
    """What three users do in some order."""
    one = st.builds(Deed, st.sampled_from(tuple(USERS)), st.sampled_from(KINDS), st.sampled_from(("s", "t")))
    return st.lists(one, min_size=1, max_size=10)


def make_words(work: Sequence[Deed], example: int) -> list[str]:
    """For each deed a word that no other deed of any example contains."""
    return [f"zq{deed.who}{_spell(example)}x{_spell(at)}qx" for at, deed in enumerate(work)]


def _spell(number: int) -> str:
    return "".join("bcdfghjklm"[int(digit)] for digit in str(number))


@asynccontextmanager
async def open_engine(folder: Path) -> AsyncGenerator[Contexture]:
    """An engine over doubles, which caches vectors in the folder."""
    cached = CachedEmbedder(Parts().foreign, folder / "embeddings.sqlite")
    encoders = Encoders(specialists={}, generalist=cached)
    store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=encoders.vectors, threads=1))
    engine = Contexture(Settings(home=folder), store, encoders, FixedClock())
    try:
        yield engine
    finally:
        await engine.close()


async def run_deed(engine: Contexture, deed: Deed, scope: Scope, word: str) -> None:
    """Do what a deed says, with its word in every text, title and id that a user may choose."""
    text, own, now = f"The {word} is kept in the shed", (f"user:{scope.user}",), NOON
    match deed.kind:
        case "record":
            await engine.add([Record(id=f"r-{word}", title=f"About {word}", text=text, acl=own)], scope=scope)
        case "memory":
            await engine.memory.remember(scope, [Memory(text=text, id=f"m-{word}", session_id=deed.session)])
        case "message" | "question" | "waiting":
            request = ChatRequest(message=text, session_id=deed.session)
            if deed.kind == "question":
                request = replace(request, message=f"Where is the {word}?", message_id=f"q-{word}")
            await (engine.once if request.message_id else engine.chat).run(request, scope=scope, now=now)
            if deed.kind != "waiting":
                await engine.outbox.drain()
        case "article":
            article = Article(article_id=f"a-{word}", title=f"{word} found", text=text, published=now, readers=own)
            await engine.news.add(scope, [article], now=now)
            await engine.graph.extract(scope, [article.article_id], trace=Trace())
        case "page":
            await engine.pages.add(scope, _make_document(word, text, own), now=now)
        case "block" | "trash":
            block = Block(id=f"b-{word}", type=BlockType.PAGE, text=text, readers=own)
            await engine.workspace.put(scope, [block], now=now)
            if deed.kind == "trash":
                await engine.workspace.delete(scope, [block.id], now=now)
        case _:
            await engine.build(f"{word} in the shed", scope=scope)
            await engine.build_workspace({"query": f"{word} in the shed"}, scope=scope)


def _make_document(word: str, text: str, readers: tuple[str, ...]) -> Document:
    region = Region(kind=RegionKind.TEXT, box=(0.1, 0.1, 0.9, 0.2), text=text, start=0, end=len(text))
    page = Page(number=1, text=text, regions=(region,), image=word.encode(), thumb=word.encode())
    return Document(
        doc_id=f"d-{word}",
        filename=f"{word}.pdf",
        extension="pdf",
        source_path=f"{word}.pdf",
        timestamp=NOON,
        pages=(page,),
        readers=readers,
    )


def find_words(folder: Path, words: Sequence[str]) -> dict[str, list[str]]:
    """By word, the files that have it in their name or their bytes."""
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    contents = {str(name): str(name).encode() + path.read_bytes().lower() for name, path in files.items()}
    found = {word: [name for name, data in contents.items() if word.encode() in data] for word in words}
    return {word: names for word, names in found.items() if names}


async def run_deeds(engine: Contexture, work: Sequence[Deed], example: int) -> tuple[list[str], list[str]]:
    """Do everything, then forget Anna; returns her words, and those of others, which the files held before."""
    words = make_words(work, example)
    for deed, word in zip(work, words, strict=True):
        await engine.create(Collection(name="documents"), scope=deed.scope(example))
        await run_deed(engine, deed, deed.scope(example), word)
    folder, anna = engine.settings.home, Deed("anna", "record").scope(example)
    assert set(words) == find_words(folder, words).keys()
    await engine.forget(ForgetRequest(user_id="anna"), scope=anna)
    hers = [word for deed, word in zip(work, words, strict=True) if deed.who == "anna"]
    return hers, [word for word in words if word not in hers]


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """One engine for all examples."""
    async with open_engine(new_folder()) as opened:
        yield opened


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(work=deeds())
async def test_a_forgotten_user_is_in_no_file_and_others_stay_in_theirs(
    work: Sequence[Deed], engine: Contexture
) -> None:
    """No store, outbox, build, cache or log holds a word of the user."""
    hers, theirs = await run_deeds(engine, work, next(EXAMPLES))
    folder = engine.settings.home

    assert {} == find_words(folder, hers)
    assert set(theirs) == find_words(folder, theirs).keys()


@pytest.mark.slow
async def test_no_backup_made_after_a_restart_holds_a_forgotten_user(
    new_folder: Callable[[], Path],
) -> None:
    """Nor does a backup made then; everything of others is in both."""
    folder = new_folder()
    async with open_engine(folder) as engine:
        work = [Deed(who, kind) for kind in KINDS for who in USERS]
        hers, theirs = await run_deeds(engine, work, next(EXAMPLES))
    async with open_engine(folder):
        pass
    archive = folder.with_suffix(".tar")
    back_up(folder, archive, now=NOON)
    packed = archive.read_bytes().lower()

    assert {} == find_words(folder, hers)
    assert [] == [word for word in hers if word.encode() in packed]
    assert set(theirs) == find_words(folder, theirs).keys()
    assert [] == [word for word in theirs if word.encode() not in packed]
