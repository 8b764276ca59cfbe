"""The engine for code without an event loop: it runs in a thread, and each call blocks until its result is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar, cast

from contexture.answer.chat_types import ChatRequest, ChatStep
from contexture.answer.commands.answer import CommandAnswer
from contexture.answer.research import ResearchAnswer, ResearchQuestion
from contexture.builders.command.request import CommandRequest
from contexture.builders.command.result import CommandContext
from contexture.builders.explain import Explanation
from contexture.builders.query.build import QueryContext
from contexture.builders.query.request import QueryRequest
from contexture.builders.research.result import ResearchContext
from contexture.builders.turn.request import Turn
from contexture.builders.turn.result import TurnContext
from contexture.builders.workspace.request import ContextRequest
from contexture.builders.workspace.result import ContextPayload
from contexture.capsule import Capsule
from contexture.config import Settings
from contexture.engine import Contexture, open_store
from contexture.ledger import Ledger
from contexture.retrieval.candidates import SearchResult
from contexture.types import Candidate, Collection, Filter, Record, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

T = TypeVar("T")

_STREAM_END_SECONDS = 30.0  # seconds: a stream that never started would never end


class SyncContexture:
    """The same engine for code without an event loop; each call blocks until its result is there."""

    def __init__(self, engine: Contexture, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop

    def create(self, collection: Collection, *, scope: Scope | None = None) -> None:
        """Create a collection for the tenant, or add filter fields to it."""
        self._wait(self._engine.create(collection, scope=scope))

    def add(self, records: Sequence[Record], *, collection: str | None = None, scope: Scope | None = None) -> int:
        """Write records."""
        return self._wait(self._engine.add(records, collection=collection, scope=scope))

    def delete(self, ids: Sequence[str], *, collection: str | None = None, scope: Scope | None = None) -> int:
        """Remove records."""
        return self._wait(self._engine.delete(ids, collection=collection, scope=scope))

    def search(
        self,
        question: str,
        *,
        collection: str | None = None,
        scope: Scope | None = None,
        where: Filter | None = None,
        pool: int | None = None,
    ) -> SearchResult:
        """Return matching passages, best first."""
        return self._wait(self._engine.search(question, collection=collection, scope=scope, where=where, pool=pool))

    def read(self, record_id: str, *, collection: str | None = None, scope: Scope | None = None) -> Candidate:
        """Return a whole record."""
        return self._wait(self._engine.read(record_id, collection=collection, scope=scope))

    def build(
        self, request: QueryRequest | str, *, scope: Scope | None = None, now: datetime | None = None
    ) -> QueryContext:
        """Build a context for a question."""
        return self._wait(self._engine.build(request, scope=scope, now=now))

    def build_turn(
        self,
        turn: Turn | Mapping[str, Any],
        *,
        max_prompt_tokens: int | None = None,
        scope: Scope | None = None,
        now: datetime | None = None,
        remember: bool = True,
    ) -> TurnContext:
        """Build the prompt of a chat turn."""
        return self._wait(
            self._engine.build_turn(turn, max_prompt_tokens=max_prompt_tokens, scope=scope, now=now, remember=remember)
        )

    def build_command(
        self,
        raw_input: CommandRequest | Mapping[str, Any],
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> CommandContext:
        """Build the context of a slash command."""
        return self._wait(self._engine.build_command(raw_input, scope=scope, now=now))

    def build_workspace(
        self,
        request: ContextRequest | Mapping[str, Any],
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> ContextPayload:
        """Build the context of a request over the workspace."""
        return self._wait(self._engine.build_workspace(request, scope=scope, now=now))

    def build_research(
        self,
        query: str,
        num_results: int = 10,
        include_text: bool = True,  # noqa: FBT001, FBT002 - as the builder takes them
        include_visual: bool = True,  # noqa: FBT001, FBT002 - same
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
        max_tokens: int | None = None,
        where: Filter | None = None,
    ) -> ResearchContext:
        """Build the context of a research question."""
        built = self._engine.build_research(
            query, num_results, include_text, include_visual, scope=scope, now=now, max_tokens=max_tokens, where=where
        )
        return self._wait(built)

    def ask_research(
        self, question: ResearchQuestion | str, *, scope: Scope | None = None, now: datetime | None = None
    ) -> ResearchAnswer:
        """Answer a research question and check the answer."""
        asked = ResearchQuestion(query=question) if isinstance(question, str) else question
        return self._wait(self._engine.ask_research.run(asked, scope=scope or self._engine.scope, now=now))

    def explain(self, build_id: str, candidate_id: str, *, scope: Scope | None = None) -> Explanation:
        """Explain the outcome of one candidate."""
        return self._wait(self._engine.explain(build_id, candidate_id, scope=scope))

    def chat(
        self, request: ChatRequest | str, *, scope: Scope | None = None, now: datetime | None = None
    ) -> Generator[ChatStep]:
        """Yield the steps of the answer to a message; closing the generator stops the answer."""
        asked = ChatRequest(message=request) if isinstance(request, str) else request
        return _iterate_steps(self._engine.chat.stream(asked, scope=scope or self._engine.scope, now=now), self._loop)

    def execute(
        self,
        raw_input: CommandRequest | Mapping[str, Any],
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> CommandAnswer:
        """Execute a slash command."""
        return self._wait(self._engine.execute.run(raw_input, scope=scope or self._engine.scope, now=now))

    def kept(self, build_id: str, *, scope: Scope | None = None) -> tuple[Capsule, Ledger]:
        """Return the capsule and the ledger of a recent build."""
        return self._wait(self._engine.kept(build_id, scope=scope))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


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
