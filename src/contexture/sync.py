"""The engine for code without an event loop: it runs in a thread, and each call blocks until its result is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import wraps
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast
from uuid import uuid4

from contexture.answer.chat_types import ChatRequest, ChatResult, ChatStep
from contexture.answer.commands.answer import CommandAnswer
from contexture.answer.research import ResearchAnswer, ResearchQuestion
from contexture.arguments import check_time, read_chat, read_object, read_research_question
from contexture.blocks.workspace import Workspace
from contexture.builders.command.request import CommandRequest
from contexture.config import Settings
from contexture.engine import Contexture, open_store
from contexture.errors import InvalidRequest
from contexture.news.store import NewsStore
from contexture.pages.store import PageStore
from contexture.ports import MemoryService
from contexture.types import Scope
from contexture.workspace import BlockStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

E = TypeVar("E")
T = TypeVar("T")
P = ParamSpec("P")

_CLOSED = "the store is closed; open it again with contexture.open_sync"
_STREAM_END_SECONDS = 30.0  # seconds: a stream that never started would never end


async def _ask_research(
    engine: Contexture,
    question: ResearchQuestion | Mapping[str, Any] | str,
    *,
    scope: Scope | None = None,
    now: datetime | None = None,
) -> ResearchAnswer:
    """Answer a research question and check the answer."""
    return await engine.ask_research.run(read_research_question(question), scope=scope or engine.scope, now=now)


async def _execute(
    engine: Contexture,
    raw_input: CommandRequest | Mapping[str, Any] | str,
    *,
    scope: Scope | None = None,
    now: datetime | None = None,
) -> CommandAnswer:
    """Execute a slash command."""
    command = read_object(raw_input, CommandRequest, "a command", text_field="raw_command")
    return await engine.execute.run(command, scope=scope or engine.scope, now=now)


class _Blocking(Generic[E]):
    """Calls the coroutines of an object in the loop of another thread."""

    def __init__(self, engine: E, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Block until a coroutine has run; raises `InvalidRequest` once the store is closed."""
        if self.loop.is_closed():
            work.close()
            raise InvalidRequest(_CLOSED)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


def _blocking(
    call: Callable[Concatenate[E, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[E], P], T]:
    """Return a method with the parameters of an asynchronous function that blocks until its result is there."""

    @wraps(call)
    def method(self: _Blocking[E], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(call(self.engine, *args, **kwargs))

    return method


def _blocking_port(
    call: Callable[Concatenate[E, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[E], P], T]:
    """Do the same for a method of a port, which whatever implements the port defines."""

    @wraps(call)
    def method(self: _Blocking[E], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(getattr(self.engine, call.__name__)(*args, **kwargs))

    return method


class SyncMemory(_Blocking[MemoryService]):
    """The memories, with the calls of `contexture.ports.MemoryService`."""

    remember = _blocking_port(MemoryService.remember)
    recall = _blocking_port(MemoryService.recall)
    feedback = _blocking_port(MemoryService.feedback)
    forget = _blocking_port(MemoryService.forget)


class SyncNews(_Blocking[NewsStore]):
    """The articles, with the calls of `contexture.NewsStore`."""

    add = _blocking(NewsStore.add)
    remove = _blocking(NewsStore.remove)
    get = _blocking(NewsStore.get)
    find = _blocking(NewsStore.find)


class SyncPages(_Blocking[PageStore]):
    """The documents and their pages, with the calls of the page store."""

    documents = _blocking(PageStore.documents)
    document = _blocking(PageStore.document)
    pages = _blocking(PageStore.pages)
    markdown = _blocking(PageStore.markdown)
    picture = _blocking(PageStore.picture)
    remove = _blocking(PageStore.remove)


class SyncWorkspace(_Blocking[Workspace]):
    """The writes of blocks, with the calls of `contexture.Workspace`."""

    put = _blocking(Workspace.put)
    update = _blocking(Workspace.update)
    copy = _blocking(Workspace.copy)
    move = _blocking(Workspace.move)
    delete = _blocking(Workspace.delete)
    restore = _blocking(Workspace.restore)
    find_pages = _blocking(Workspace.find_pages)


class SyncBlocks(_Blocking[BlockStore]):
    """The stored blocks, with the reading calls of `contexture.workspace.BlockStore`."""

    get = _blocking_port(BlockStore.get)
    children = _blocking_port(BlockStore.children)
    tasks = _blocking_port(BlockStore.tasks)
    changes = _blocking_port(BlockStore.changes)
    select = _blocking_port(BlockStore.select)
    find_named = _blocking_port(BlockStore.find_named)
    roots = _blocking_port(BlockStore.roots)
    history = _blocking_port(BlockStore.history)


class ChatSteps(Iterator[ChatStep]):
    """The steps of an answer, in order; the message is sent when the first one is read.

    `result()` waits for the answer, whether or not its steps were read. `close()` stops the answer.
    """

    def __init__(self, steps: Generator[ChatStep]) -> None:
        self._steps = steps
        self._result: ChatResult | None = None

    def __next__(self) -> ChatStep:
        """Wait for the next step."""
        step = next(self._steps)
        if isinstance(step, ChatResult):
            self._result = step
        return step

    def result(self) -> ChatResult:
        """Wait for the answer; raises `InvalidRequest` if it was stopped."""
        for _ in self:
            pass
        if self._result is None:
            raise InvalidRequest("the answer was stopped before its end")
        return self._result

    def close(self) -> None:
        """Stop the answer; the text so far is stored."""
        self._steps.close()


class SyncContexture(_Blocking[Contexture]):
    """The same engine for code without an event loop; each call blocks until its result is there.

    `with` closes it; without `with`, call `close()`. What was written is stored either way.
    """

    def __init__(
        self, engine: Contexture, loop: asyncio.AbstractEventLoop, *, on_close: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(engine, loop)
        self._session_id = uuid4().hex
        self._on_close = on_close
        self._closed = False

    def __enter__(self) -> Self:
        """Return the engine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the engine."""
        self.close()

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._on_close()

    create = _blocking(Contexture.create)
    add = _blocking(Contexture.add)
    ingest = _blocking(Contexture.ingest)
    delete = _blocking(Contexture.delete)
    remember = _blocking(Contexture.remember)
    recall = _blocking(Contexture.recall)
    forget = _blocking(Contexture.forget)
    search = _blocking(Contexture.search)
    read = _blocking(Contexture.read)
    build = _blocking(Contexture.build)
    ask = _blocking(Contexture.ask)
    build_ask = _blocking(Contexture.build_ask)
    build_turn = _blocking(Contexture.build_turn)
    build_command = _blocking(Contexture.build_command)
    build_research = _blocking(Contexture.build_research)
    build_workspace = _blocking(Contexture.build_workspace)
    build_kind = _blocking(Contexture.build_kind)
    execute = _blocking(_execute)
    ask_research = _blocking(_ask_research)
    capsule = _blocking(Contexture.capsule)
    load_build = _blocking(Contexture.load_build)
    explain = _blocking(Contexture.explain)
    verify = _blocking(Contexture.verify)
    warm_embedders = _blocking(Contexture.warm_embedders)
    embed_rest = _blocking(Contexture.embed_rest)
    count_unembedded = _blocking(Contexture.count_unembedded)
    wait_delivered = _blocking(Contexture.wait_delivered)

    @property
    def memory(self) -> SyncMemory:
        """The memory service."""
        return SyncMemory(self.engine.memory, self.loop)

    @property
    def news(self) -> SyncNews:
        """The store of articles."""
        return SyncNews(self.engine.news, self.loop)

    @property
    def pages(self) -> SyncPages:
        """The store of documents."""
        return SyncPages(self.engine.pages, self.loop)

    @property
    def workspace(self) -> SyncWorkspace:
        """Writes blocks."""
        return SyncWorkspace(self.engine.workspace, self.loop)

    @property
    def blocks(self) -> SyncBlocks:
        """Reads blocks."""
        return SyncBlocks(self.engine.blocks, self.loop)

    @property
    def settings(self) -> Settings:
        """The settings of the engine."""
        return self.engine.settings

    @property
    def scope(self) -> Scope:
        """The scope of calls that name none."""
        return self.engine.scope

    def chat(
        self, request: ChatRequest | Mapping[str, Any] | str, *, scope: Scope | None = None, now: datetime | None = None
    ) -> ChatSteps:
        """Return the steps of the answer to a message; `chat(…).result()` is the answer.

        Texts without a session belong to one conversation, which lasts until the engine is closed.
        """
        if self.loop.is_closed():
            raise InvalidRequest(_CLOSED)
        chat_request = read_chat(request, self._session_id)
        check_time(now)
        steps = self.engine.chat.stream(chat_request, scope=scope or self.scope, now=now)
        return ChatSteps(_iterate_steps(steps, self.loop))


def open_sync(where: Path | str | Settings | None = None) -> SyncContexture:
    """Open a store like `contexture.open`, for code without an event loop.

    The result closes the store at the end of a `with` block, or when `close()` is called.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="contexture", daemon=True)
    thread.start()
    opened = open_store(where)

    def end_loop() -> None:
        asyncio.run_coroutine_threadsafe(_cancel_tasks(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def close_store() -> None:
        try:
            asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result()
        finally:
            end_loop()

    try:
        engine = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
    except BaseException:
        end_loop()
        raise
    return SyncContexture(engine, loop, on_close=close_store)


async def _cancel_tasks() -> None:
    """Cancel leftover tasks, as `asyncio.run` does, such as an embedding whose caller has given up."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _iterate_steps(steps: AsyncIterator[ChatStep], loop: asyncio.AbstractEventLoop) -> Generator[ChatStep]:
    """Yield the steps of an async iterator that runs in the loop of another thread."""
    queue: SimpleQueue[ChatStep | None] = SimpleQueue()
    ended = threading.Event()

    async def pump() -> None:
        try:
            async with aclosing(cast("AsyncGenerator[ChatStep]", steps)) as open_steps:
                async for step in open_steps:
                    queue.put(step)
        finally:
            ended.set()
            queue.put(None)

    work = asyncio.run_coroutine_threadsafe(pump(), loop)
    try:
        while (step := queue.get()) is not None:
            yield step
        work.result()
    finally:
        work.cancel()
        ended.wait(_STREAM_END_SECONDS)  # the text so far is stored before the caller continues
