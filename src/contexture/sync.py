"""The engine for code without an event loop: it runs in a thread, and each call blocks until its result is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing, contextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast
from uuid import uuid4

from contexture.answer.chat_types import ChatRequest, ChatStep
from contexture.answer.commands.answer import CommandAnswer
from contexture.answer.research import ResearchAnswer, ResearchQuestion
from contexture.builders.command.request import CommandRequest
from contexture.config import Settings
from contexture.engine import Contexture, open_store
from contexture.types import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

T = TypeVar("T")
P = ParamSpec("P")

_STREAM_END_SECONDS = 30.0  # seconds: a stream that never started would never end


async def _ask_research(
    engine: Contexture, question: ResearchQuestion | str, *, scope: Scope | None = None, now: datetime | None = None
) -> ResearchAnswer:
    """Answer a research question and check the answer."""
    research_question = ResearchQuestion(query=question) if isinstance(question, str) else question
    return await engine.ask_research.run(research_question, scope=scope or engine.scope, now=now)


async def _execute(
    engine: Contexture,
    raw_input: CommandRequest | Mapping[str, Any],
    *,
    scope: Scope | None = None,
    now: datetime | None = None,
) -> CommandAnswer:
    """Execute a slash command."""
    return await engine.execute.run(raw_input, scope=scope or engine.scope, now=now)


def _blocking(
    call: Callable[Concatenate[Contexture, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncContexture, P], T]:
    """Return a method with the parameters of an asynchronous call that blocks until its result is there."""

    @wraps(call)
    def method(self: SyncContexture, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return asyncio.run_coroutine_threadsafe(call(self.engine, *args, **kwargs), self.loop).result()

    return method


class SyncContexture:
    """The same engine for code without an event loop; each call blocks until its result is there."""

    def __init__(self, engine: Contexture, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop
        self._session_id = uuid4().hex

    create = _blocking(Contexture.create)
    add = _blocking(Contexture.add)
    delete = _blocking(Contexture.delete)
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
    def settings(self) -> Settings:
        """The settings of the engine."""
        return self.engine.settings

    @property
    def scope(self) -> Scope:
        """The scope of calls that name none."""
        return self.engine.scope

    def chat(
        self, request: ChatRequest | str, *, scope: Scope | None = None, now: datetime | None = None
    ) -> Generator[ChatStep]:
        """Yield the steps of the answer to a message; closing the generator stops the answer.

        Texts without a session belong to one conversation, which lasts until the engine is closed.
        """
        chat_request = (
            ChatRequest(message=request, session_id=self._session_id) if isinstance(request, str) else request
        )
        return _iterate_steps(self.engine.chat.stream(chat_request, scope=scope or self.scope, now=now), self.loop)


@contextmanager
def open_sync(where: Path | str | Settings | None = None) -> Generator[SyncContexture]:
    """Open a store like `contexture.open`, for code without an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="contexture", daemon=True)
    thread.start()
    opened = open_store(where)
    try:
        engine = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
        try:
            yield SyncContexture(engine, loop)
        finally:
            asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_tasks(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


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
