"""The engine, one object over one store: add records, search them, build contexts, explain and replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from contexture import arguments, wiring
from contexture.answer.ask import AskAnswer, AskEverything
from contexture.answer.build import AnswerBuild
from contexture.answer.chat import ProcessMessage
from contexture.answer.chat_types import ChatResult
from contexture.answer.citation_check import CitationReport, Citing, parse_claims
from contexture.answer.commands.execute import ExecuteCommand
from contexture.answer.idempotency import AnswerOnce
from contexture.answer.permissions import REMEMBER, PolicyCheckedMemory, describe_memories
from contexture.answer.research import AskResearch
from contexture.answer.workspace import AskWorkspace
from contexture.arguments import MemoryLike, RecordLike
from contexture.builders.ask.build import AskContextBuilder
from contexture.builders.ask.request import AskRequest
from contexture.builders.ask.result import AskContext
from contexture.builders.clean import CleanerFactory
from contexture.builders.command.build import CommandContextBuilder
from contexture.builders.command.request import CommandRequest
from contexture.builders.command.result import CommandContext
from contexture.builders.plugin import BuilderPlugin, BuilderServices, PluginContext
from contexture.builders.query.build import QueryContextBuilder
from contexture.builders.query.request import QueryRequest
from contexture.builders.query.result import QueryContext
from contexture.builders.replay import Explanation
from contexture.builders.research.build import ResearchContextBuilder
from contexture.builders.research.result import ResearchContext
from contexture.builders.sources import SourcePorts
from contexture.builders.telemetry import build_span
from contexture.builders.turn.request import Turn
from contexture.builders.turn.result import TurnContext
from contexture.builders.workspace.request import ContextRequest
from contexture.builders.workspace.result import ContextPayload
from contexture.capsule import Capsule, pack_capsule, unpack_capsule
from contexture.config import Settings
from contexture.conversation import HealthState, Recall, Recalled
from contexture.erasure.erase import Erasure, ErasureStores
from contexture.erasure.request import ForgetRequest, parse_forget
from contexture.errors import InvalidRequest, NotFound, RedactionFailed, SourceError
from contexture.file_loading import FileKind, FileLoader
from contexture.ingestion.loader import LoadReport, Progress
from contexture.ledger import Degradation, Ledger, Trace
from contexture.memory.service import MAX_TOP_K
from contexture.news.articles import ARTICLES
from contexture.news.store import NewsStore
from contexture.pages.records import PAGES, cut_stored_page
from contexture.pages.visual import VISUAL_PAGES
from contexture.pipeline.masking import SecretMaskCache
from contexture.ports import Clock, Embedder, Health, Index, MemoryService, SessionStore, Tracer, VectorBacklog
from contexture.retrieval.backfill import Reindexer, VectorBackfill
from contexture.retrieval.candidates import SearchResult, candidate_from_passage, candidate_from_record
from contexture.retrieval.citations import QuoteChecker
from contexture.retrieval.compute_thread import RequestsInProgress
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.message_context import MessageContexts
from contexture.retrieval.search import DEFAULT_POOL
from contexture.types import Candidate, Collection, Filter, Receipt, Scope
from contexture.workspace import BlockStore


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedRecords:
    """What `add` wrote: the ids of the records, their collection, and the number of the write."""

    ids: tuple[str, ...]
    collection: str
    write: int


class Contexture:
    """The engine, wired from settings; open it with `contexture.open`."""

    def __init__(self, settings: Settings, store: Index, embedders: Encoders, clock: Clock | None = None) -> None:
        self.settings = settings
        self.index = store
        pool = wiring.connection_pool(settings, store)
        self._routed_index = wiring.routed_index(settings, store, embedders)
        self.scope = Scope(tenant=settings.tenant, user=settings.user, groups=settings.groups)
        self.registry = CollectorRegistry()
        self.spans: Tracer = wiring.spans(settings)
        self.policy = wiring.policy(settings)
        self.secrets = wiring.secrets(settings)
        self._known_secrets = SecretMaskCache(self.secrets)
        self._embedders = embedders
        self._redactor = wiring.redactor(settings)
        self._operator = wiring.operator(settings)
        self._cleaners = CleanerFactory(redactor=self._redactor, secrets=self._known_secrets, operator=self._operator)
        self.searcher = wiring.search(settings, self._routed_index, embedders)
        self._preparer = wiring.preparer(settings, embedders, self._redactor)
        self._message_contexts = MessageContexts(store, self._preparer.vectors)
        cuts = {PAGES.name: cut_stored_page}
        self._clock = clock or wiring.SystemClock()
        self.health: Health = wiring.memory_health(settings)
        self._memory = wiring.memory_service(
            settings, store, self._preparer, self.searcher, clock=self._clock, health=self.health
        )
        self.memory: MemoryService = PolicyCheckedMemory(self._memory, lambda: self.policy)
        # What is put into the outbox is checked by whoever puts it there, not again when it is delivered.
        self.outbox = wiring.outbox(settings, self._memory.deliveries, self._clock, pool)
        self._sessions = wiring.sessions(settings, pool)
        self.sessions: SessionStore = self._sessions
        self._replies = wiring.replies(settings, pool)
        self._graph_cache = wiring.graph_cache(settings, pool)
        self.graph = wiring.graph_store(settings, store, self._graph_cache, self._redactor)
        self._summarizer = wiring.summarizer(settings)
        self._blocks = wiring.block_store(settings, pool)
        self.blocks: BlockStore = self._blocks
        self.workspace = wiring.block_writer(self._blocks, store, self._preparer, self._handle_removed_blocks)
        self.workspaces = wiring.workspace_builder(
            settings,
            self.blocks,
            self.searcher,
            scanner=self._redactor,
            secrets=self.secrets,
            clock=self._clock,
            speaker=self.scope,
            registry=self.registry,
            summarizer=self._summarizer,
        )
        wiring.cache_metrics(self.registry, self.searcher)
        wiring.memory_metrics(self.registry, self.health, self._memory)
        self.pages = wiring.page_store(
            settings,
            self._routed_index,
            embedders,
            preparer=self._preparer,
            searcher=self.searcher,
            scanner=self._redactor,
            pool=pool,
            on_removed=lambda scope, records: self.erasure.erase_copies(scope, PAGES.name, records),
        )
        self.requests = RequestsInProgress()
        rewrites = {VISUAL_PAGES.name: self.pages.embed_visually}
        self.reindexer = Reindexer(store, self._preparer, cuts, rewrites)
        self.backfill = (
            VectorBackfill(
                backlog=self._routed_index,
                index=store,
                preparer=self._preparer,
                cuts=cuts,
                embedders=rewrites,
                requests=self.requests,
            )
            if isinstance(self._routed_index, VectorBacklog)
            else None
        )
        self._query_builder = self._query_builder_for(settings.counted_model)
        self.turns = wiring.turn_builder(settings, self._turn_parts())
        self._builds = wiring.builds(settings, pool)
        self._replayer = wiring.capsule_replayer()
        self._other_builders: dict[str, BuilderPlugin[Any]] = {}
        self._closed = False
        self._embedders_loaded = False

    @property
    def news(self) -> NewsStore:
        """The store of articles, searchable by window, language and source."""
        return self._news

    @cached_property
    def _news(self) -> NewsStore:
        return wiring.news_store(
            self.settings,
            self.index,
            self._embedders,
            preparer=self._preparer,
            searcher=self.searcher,
            scanner=self._redactor,
            on_removed=wiring.article_removal_hook(
                self.graph, lambda scope, records: self.erasure.erase_copies(scope, ARTICLES.name, records)
            ),
        )

    @cached_property
    def erasure(self) -> Erasure:
        """Removes texts from every store that keeps them or a copy of them."""
        return Erasure(
            ErasureStores(
                index=self._routed_index,
                list_owners=wiring.private_id_owners(self._routed_index),
                memory=self._memory,
                memory_is_local=not self.settings.memory_url,
                namespace=self.settings.memory_namespace,
                universe=self.settings.memory_universe,
                sessions=self.sessions,
                copies={"builds": self._builds, "replies": self._replies, "outbox": self.outbox},
                graph=self.graph,
                blocks=self.blocks,
                workspace=self.workspace,
                pages=self.pages,
                news=lambda: self.news,
                preparer=self._preparer,
                forget_imports=wiring.import_texts_eraser(self.settings),
                scrub=lambda collections: wiring.scrub_index(self.index, collections),
                clean=self.redact_text,
                clock=self._clock,
                out_of_reach=wiring.out_of_reach(self.settings),
                splits_messages=bool(self.settings.memory_model),
            )
        )

    @cached_property
    def research(self) -> ResearchContextBuilder:
        """The builder of contexts for research questions over documents."""
        return wiring.research_builder(
            self.settings,
            self.pages,
            scanner=self._redactor,
            secrets=self.secrets,
            clock=self._clock,
            speaker=self.scope,
        )

    @cached_property
    def everything(self) -> AskContextBuilder:
        """The builder of contexts for questions over everything."""
        return wiring.ask_builder(
            self.settings,
            self._source_ports(),
            scanner=self._redactor,
            secrets=self.secrets,
            clock=self._clock,
            speaker=self.scope,
        )

    def _source_ports(self) -> SourcePorts:
        return SourcePorts(
            index=self._routed_index,
            search=self.searcher,
            pages=self.pages,
            news=self.news,
            memory=self.memory,
            namespace=self.settings.memory_namespace,
            universe=self.settings.memory_universe,
        )

    @cached_property
    def commands(self) -> CommandContextBuilder:
        """The builder of contexts for slash commands over news."""
        return wiring.command_builder(
            self.settings,
            self.news,
            scanner=self._redactor,
            secrets=self.secrets,
            clock=self._clock,
            speaker=self.scope,
        )

    @cached_property
    def chat(self) -> ProcessMessage:
        """Processes chat messages; its models are loaded on first use."""
        return ProcessMessage(
            policy=self.policy,
            sessions=self.sessions,
            build=self.build_turn,
            route=wiring.chat_route(self.settings, wiring.text_similarities(self._embedders)),
            memories=self.outbox,
            secrets=self.secrets,
            counter=wiring.counter_for(self.settings.counted_model),
            clock=self._clock,
            settle=self.turns.settle,
            arrived=self.wait_delivered,
            extractor=wiring.statement_extractor(self.settings),
            recipe=wiring.chat_recipe(self.settings),
        )

    @cached_property
    def answer_once(self) -> AnswerOnce:
        """Processes messages with an id, each once."""
        return AnswerOnce(process=self.chat, replies=self._replies, check_readable=self._check_answer)

    @property
    def once(self) -> AnswerOnce:
        """The earlier name of `answer_once`."""
        return self.answer_once

    @cached_property
    def execute(self) -> ExecuteCommand:
        """Executes slash commands; its models are loaded on first use."""
        return ExecuteCommand(
            build=self.build_command,
            policy=self.policy,
            index=self.index,
            news=self.news,
            graph=self.graph,
            memory=self.memory,
            redactor=self._redactor,
            secrets=self._known_secrets,
            writer=wiring.command_writer(self.settings),
            place=wiring.memory_place(self.settings),
            operator=self._operator,
            compare=self._embedders.compare,
        )

    @cached_property
    def ask_research(self) -> AskResearch:
        """Answers research questions; its models are loaded on first use."""
        return AskResearch(
            build=self.build_research,
            policy=self.policy,
            route=wiring.chat_route(self.settings),
            secrets=self.secrets,
            counter=wiring.counter_for(self.settings.counted_model),
            pictures=self.pages.picture,
            alike=wiring.text_similarity(self._embedders),
            recipe=wiring.answer_recipe(self.settings),
        )

    @cached_property
    def ask_everything(self) -> AskEverything:
        """Answers questions over everything; its models are loaded on first use."""
        return AskEverything(
            build=self.build_ask,
            policy=self.policy,
            route=wiring.chat_route(self.settings, wiring.text_similarities(self._embedders)),
            secrets=self.secrets,
            alike=wiring.text_similarity(self._embedders),
            recipe=wiring.answer_recipe(self.settings),
        )

    @cached_property
    def answer_build(self) -> AnswerBuild:
        """Answers the prompts of recent builds; its models are loaded on first use."""
        return AnswerBuild(
            load=self.capsule,
            policy=self.policy,
            route=wiring.chat_route(self.settings, wiring.text_similarities(self._embedders)),
            secrets=self.secrets,
            alike=wiring.text_similarity(self._embedders),
            recipe=wiring.answer_recipe(self.settings),
        )

    @cached_property
    def ask_workspace(self) -> AskWorkspace:
        """Answers questions from the workspace; its models are loaded on first use."""
        return AskWorkspace(
            build=self.build_workspace,
            policy=self.policy,
            route=wiring.chat_route(self.settings),
            secrets=self.secrets,
            counter=wiring.counter_for(self.settings.counted_model),
            alike=wiring.text_similarity(self._embedders),
            recipe=wiring.answer_recipe(self.settings),
        )

    @property
    def clock(self) -> Clock:
        """The clock of the engine."""
        return self._clock

    @property
    def vectors(self) -> Sequence[str]:
        """The names of the embedders' vectors."""
        return tuple(self._embedders.vectors)

    @property
    def embedders(self) -> Mapping[str, Embedder]:
        """The embedders by name, the multilingual one first."""
        return self._embedders.embedders

    async def warm_embedders(self) -> None:
        """Run each embedder once, so that the first real question does not wait for it to load."""
        for text, lang in (("warm", "en"), ("тепло", "ru")):
            await self._embedders.question(text, lang)

    async def _load_embedders(self) -> None:
        """Load the embedders before the deadline of the first build starts; a search reports one that fails."""
        if not self._embedders_loaded:
            with suppress(SourceError):
                await self.warm_embedders()
            self._embedders_loaded = True

    @property
    def memory_refusal(self) -> str:
        """Why the memory service refuses our key or user; empty while it does not."""
        return self._memory.refusal

    @property
    def memory_broken(self) -> bool:
        """Whether the memory service is switched off by `break_memory`."""
        return self._memory.broken

    def break_memory(self, *, broken: bool) -> None:
        """Let every call of the memory service fail, or stop that, to see how builds degrade."""
        self._memory.broken = broken

    async def create(self, collection: Collection | str, *, scope: Scope | None = None) -> None:
        """Create a collection for the tenant, or add filter fields to it."""
        wanted = Collection(name=collection) if isinstance(collection, str) else collection
        await self.index.create(self._resolve(scope), wanted)

    async def add(
        self,
        records: RecordLike | Sequence[RecordLike],
        *,
        collection: str | None = None,
        acl: Sequence[str] | None = None,
        scope: Scope | None = None,
    ) -> AddedRecords:
        """Write records; a missing collection is created. Returns the ids of what was written.

        A record is a `Record`, a dict like a row of a JSONL file, or a document of LangChain or LlamaIndex. `acl` are
        the readers of dicts and documents that name none; by default only the user of the scope.

        Raises `InvalidRequest` for a record that cannot be written, and writes none of them then.
        """
        writer = self._resolve(scope)
        name = collection or self.settings.collection
        written = arguments.read_records(records, (f"user:{writer.user}",) if acl is None else acl)
        for record in written:
            self._preparer.check_readers(f"record {record.id!r}", record.acl)
        if all(known.name != name for known in await self.index.collections(writer)):
            await self.index.create(writer, Collection(name=name))
        contexts = await self._message_contexts.find(writer, name, written)
        prepared = await self._preparer.prepare(written, contexts)
        number = await self.index.upsert(writer, name, prepared)
        return AddedRecords(ids=tuple(record.id for record in written), collection=name, write=number)

    async def ingest(
        self,
        *paths: Path | str,
        kind: FileKind | None = None,
        readers: Sequence[str] | None = None,
        again: bool = False,
        scope: Scope | None = None,
        progress: Progress | None = None,
    ) -> LoadReport:
        """Load files and folders, as `contexture ingest` does; unchanged ones are skipped unless `again` is set.

        Without `kind`, PDF, office, mail, HTML and image files become pages, and JSONL, Markdown and text files
        records. `readers` are those of everything that names none: by default everyone in the tenant, for memories
        only the user. What cannot be read is listed in the report, and the rest is loaded.

        report = ctx.ingest("handbook", "report.pdf")
        """
        loader = FileLoader(engine=self, scope=self._resolve(scope), again=again, progress=progress)
        return await loader.load([arguments.read_path(path) for path in paths], kind=kind, readers=readers)

    async def remember(
        self, memories: MemoryLike | Sequence[MemoryLike], *, scope: Scope | None = None
    ) -> Sequence[str]:
        """Store memories of the user of the scope, as texts, dicts or `Memory` objects; returns their ids.

        await ctx.remember("Anna is allergic to nuts.")
        """
        place = wiring.memory_place(self.settings)
        found = arguments.read_memories(memories, namespace=place.namespace, universe=place.universe)
        return await self.memory.remember(self._resolve(scope), found)

    async def recall(
        self, query: str, *, limit: int = 8, scope: Scope | None = None, now: datetime | None = None
    ) -> Sequence[Recalled]:
        """Return the memories that match a query, best first, with known secrets and personal data redacted."""
        arguments.check_text(query)
        self.check_query(query)
        arguments.check_limit(limit, MAX_TOP_K)
        place = wiring.memory_place(self.settings)
        asked = Recall(
            query=query,
            now=now or self.clock.now(),
            top_k=limit,
            threshold=place.threshold,
            namespace=place.namespace,
            universe=place.universe,
        )
        cleaner = self._cleaners.make(Trace())
        found = await self.memory.recall(self._resolve(scope), asked)
        return [replace(each, text=cleaner.clean_text(each.text), redactions=None, pieces=()) for each in found]

    async def delete(
        self, ids: Sequence[str] | str, *, collection: str | None = None, scope: Scope | None = None
    ) -> Receipt:
        """Remove records, and the kept builds and replies that cite them; the receipt lists what was removed where."""
        if isinstance(ids, str):
            ids = [ids]
        name, writer = collection or self.settings.collection, self._resolve(scope)
        readable = await self.index.get(writer, name, list(dict.fromkeys(ids)))
        await self.index.delete(writer, name, ids)
        copies = await self.erasure.erase_copies(writer, name, readable)
        return copies.add(name, [record.id for record in readable])

    async def forget(self, request: ForgetRequest | Mapping[str, Any], *, scope: Scope | None = None) -> Receipt:
        """Forget a user, a session, records or a subject, in every place that keeps a copy of their text.

        The receipt lists what was removed where, and what is out of reach; with `preview` nothing is removed.
        """
        forget = request if isinstance(request, ForgetRequest) else parse_forget(request)
        self.check_query(forget.matching)
        return await self.erasure.forget(forget.with_collection(self.settings.collection), scope=self._resolve(scope))

    async def search(
        self,
        question: str,
        *,
        limit: int | None = None,
        collection: str | None = None,
        scope: Scope | None = None,
        where: Filter | Mapping[str, Any] | None = None,
        pool: int | None = None,
        now: datetime | None = None,
    ) -> SearchResult:
        """Return matching passages, best first, redacted, with every ranking signal.

        At most `limit` are returned, of at most `pool` that are ranked; the default pool grows with `limit`.
        A time in the question that is relative ("last week") is relative to `now`, by default the current time.
        Raises `InvalidRequest` for a query that is empty or too long.
        """
        arguments.check_time(now)
        asker = self._resolve(scope)
        arguments.check_text(question)
        self.check_query(question)
        if limit is not None:
            arguments.check_limit(limit)
        trace = Trace()
        cleaner = self._cleaners.make(trace)
        cleaned = cleaner.mask_text(question)
        if not cleaned.strip():
            raise InvalidRequest("the query is empty")
        name = collection or self.settings.collection
        if limit is not None and limit > (pool or DEFAULT_POOL):
            pool = limit
        found = await self.searcher.search(
            asker,
            name,
            cleaned,
            where=arguments.read_filter(where),
            pool=pool,
            trace=trace,
            now=now or self.clock.now(),
        )
        raw = [candidate_from_passage(each, name, self._redactor.rules, cleaner.mask) for each in found]
        clean = cleaner.clean_candidates(raw)
        return SearchResult(question=cleaned, found=tuple(clean[:limit]), degradations=trace.finish(()).degradations)

    def _resolve(self, scope: Scope | None) -> Scope:
        """Return the scope of a call; raises `InvalidRequest` for another value, and once the engine is closed."""
        if self._closed:
            raise InvalidRequest("the store is closed; open it again")
        return arguments.read_scope(scope, self.scope)

    def check_query(self, query: object) -> None:
        """Raise `InvalidRequest` for a query longer than `max_query_characters`."""
        most = self.settings.max_query_characters
        if isinstance(query, str) and len(query) > most:
            raise InvalidRequest(
                f"the query has {len(query)} characters, and {most} are allowed (CONTEXTURE_MAX_QUERY_CHARACTERS)"
            )

    def redact_text(self, text: str) -> str:
        """Redact a text that is not a record, with known secrets masked."""
        return self._cleaners.make(Trace()).clean_text(text)

    async def read(self, record_id: str, *, collection: str | None = None, scope: Scope | None = None) -> Candidate:
        """Return a whole record, redacted; raises `NotFound` if it does not exist or the scope may not read it."""
        name = collection or self.settings.collection
        stored = await self._routed_index.get(self._resolve(scope), name, [record_id])
        if not stored:
            raise NotFound(f"no record {record_id!r} can be read in {name!r}")
        cleaner = self._cleaners.make(Trace())
        raw = candidate_from_record(stored[0], name, cleaner.mask)
        shown = await asyncio.to_thread(cleaner.clean_candidates, [raw])
        if not shown:
            raise RedactionFailed(f"record {record_id!r} could not be redacted, and is not shown")
        return shown[0]

    @build_span("query")
    async def build(
        self,
        request: QueryRequest | Mapping[str, Any] | str,
        *,
        max_tokens: int | None = None,
        scope: Scope | None = None,
        now: datetime | None = None,
        model: str | None = None,
    ) -> QueryContext:
        """Build a context for a question, stored on disk for `explain` and `replay`.

        `max_tokens` is the budget, and `model` selects the tokenizer, instead of those that the request names.
        """
        arguments.check_time(now)
        query = arguments.read_query(request, self.settings, max_tokens)
        self.check_query(query.query)
        chosen = model or query.model
        builder = self._query_builder_for(chosen) if chosen else self._query_builder
        asker = self._resolve(scope)
        await self._load_embedders()
        built = await builder.build(query, scope=asker, now=now)
        lost = await self._save_build(built.capsule)
        return replace(built, ledger=built.ledger.with_degradation(lost)) if lost else built

    @build_span("turn")
    async def build_turn(
        self,
        turn: Turn | Mapping[str, Any] | str,
        *,
        max_prompt_tokens: int | None = None,
        scope: Scope | None = None,
        now: datetime | None = None,
        remember: bool = True,
        with_sources: bool = False,
    ) -> TurnContext:
        """Build the prompt of a chat turn, stored on disk for `explain` and `replay`; see `TurnContextBuilder`.

        With `remember`, and if the policy allows it, a summary of trimmed history is stored. `with_sources` adds what
        answers the message in records, documents, news and the workspace.
        """
        arguments.check_time(now)
        said = arguments.read_turn(turn)
        history = said.history if isinstance(said, Turn) else said.get("history")
        if remember and history:
            remember = (await self.policy.decide(self._resolve(scope), REMEMBER, describe_memories(1))).allowed
        await self.wait_delivered(self._resolve(scope))
        if with_sources or not self.settings.memory_url:
            await self._load_embedders()
        built = await self.turns.build_for_turn(
            said,
            max_prompt_tokens=max_prompt_tokens,
            scope=scope,
            now=now,
            remember=remember,
            with_sources=with_sources,
        )
        lost = await self._save_build(built.capsule)
        return replace(built, ledger=built.ledger.with_degradation(lost)) if lost else built

    @build_span("command")
    async def build_command(
        self,
        raw_input: CommandRequest | Mapping[str, Any] | str,
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> CommandContext:
        """Build the context of a slash command, stored on disk for `explain` and `replay`.

        See `CommandContextBuilder`.
        """
        arguments.check_time(now)
        command = arguments.read_object(raw_input, CommandRequest, "a command", text_field="raw_command")
        self.check_query(command.args if isinstance(command, CommandRequest) else command.get("args"))
        await self._load_embedders()
        built = await self.commands.build_context(command, scope=self._resolve(scope), now=now)
        lost = await self._save_build(built.capsule)
        return replace(built, ledger=built.ledger.with_degradation(lost)) if lost else built

    @build_span("research")
    async def build_research(
        self,
        query: str,
        num_results: int = 10,
        include_text: bool = True,  # noqa: FBT001, FBT002 - as the builder takes them
        include_visual: bool = True,  # noqa: FBT001, FBT002 - same
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
        max_tokens: int | None = None,
        where: Filter | Mapping[str, Any] | None = None,
    ) -> ResearchContext:
        """Build the context of a research question, stored on disk for `explain` and `replay`.

        See `ResearchContextBuilder`.
        """
        arguments.check_time(now)
        arguments.check_text(query)
        self.check_query(query)
        await self._load_embedders()
        built = await self.research.build_context(
            query,
            num_results,
            include_text,
            include_visual,
            scope=self._resolve(scope),
            now=now,
            max_tokens=max_tokens,
            where=arguments.read_filter(where),
        )
        lost = await self._save_build(built.capsule) if built.capsule else None
        return replace(built, ledger=built.ledger.with_degradation(lost)) if lost else built

    @build_span("ask")
    async def build_ask(
        self,
        request: AskRequest | Mapping[str, Any] | str,
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> AskContext:
        """Build the context of a question over everything, stored on disk for `explain` and `replay`.

        See `AskContextBuilder`.
        """
        arguments.check_time(now)
        asked = arguments.read_ask(request)
        self.check_query(asked.query)
        await self._load_embedders()
        built = await self.everything.build(asked, scope=self._resolve(scope), now=now)
        lost = await self._save_build(built.capsule)
        return replace(built, ledger=built.ledger.with_degradation(lost)) if lost else built

    async def ask(
        self,
        question: AskRequest | Mapping[str, Any] | str,
        *,
        max_tokens: int | None = None,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> AskAnswer:
        """Answer a question from everything that the scope may read, with checked citations.

        answer = await ctx.ask("Who repairs the pump, and what did it cost?")
        """
        asked = arguments.read_ask(question)
        if max_tokens is not None:
            asked = replace(asked, max_tokens=max_tokens)
        await self._load_embedders()
        return await self.ask_everything.run(asked, scope=self._resolve(scope), now=now)

    async def verify(self, data: Citing, *, scope: Scope | None = None) -> CitationReport:
        """Check every citation in a result, a capsule or the JSON of one, as `scope` sees the store now.

        See `answer.citation_check`.
        """
        claims = parse_claims(data)
        check = QuoteChecker(
            stored=self._routed_index,
            redactor=self._redactor,
            operator=self._operator(),
            mask=self._known_secrets.current(),
        )
        return CitationReport(
            citations=len({citation for quote in claims.quotes for citation in quote.citations}),
            problems=tuple(await check.find_problems(self._resolve(scope), claims.quotes)),
            faults=claims.faults,
        )

    @build_span("workspace")
    async def build_workspace(
        self,
        request: ContextRequest | Mapping[str, Any] | str,
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> ContextPayload:
        """Build the context of a request over the workspace, stored on disk; see `WorkspaceContextBuilder`."""
        asked = arguments.read_object(request, ContextRequest, "a request", text_field="query")
        self.check_query(asked.query if isinstance(asked, ContextRequest) else asked.get("query"))
        await self._load_embedders()
        built = await self.workspaces.build(asked, scope=self._resolve(scope), now=now)
        lost = await self._save_build(built.capsule)
        return replace(built, ledger=built.ledger.with_degradation(lost)) if lost else built

    async def build_kind(
        self,
        kind: str,
        request: Mapping[str, Any] | BaseModel,
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> PluginContext:
        """Build a context with the builder that another package registers as `kind`, stored like any other.

        Raises `UnknownAdapter` for a kind that is not installed; see `contexture.builders.plugin`.
        """
        if kind not in self._other_builders:
            self._other_builders[kind] = wiring.load_builder(kind)
        return await build_span(kind)(Contexture._build_other)(
            self, self._other_builders[kind], request, self._resolve(scope), now or self._clock.now()
        )

    async def _build_other(
        self, builder: BuilderPlugin[Any], request: Mapping[str, Any] | BaseModel, scope: Scope, now: datetime
    ) -> PluginContext:
        await self._load_embedders()
        built = await builder.run(self._builder_services, request, scope=scope, now=now)
        lost = await self._save_build(built.capsule)
        return replace(built, ledger=built.ledger.with_degradation(lost)) if lost else built

    @cached_property
    def _builder_services(self) -> BuilderServices:
        return wiring.builder_services(self.settings, self.searcher, self._cleaners)

    async def capsule(self, build_id: str, *, scope: Scope | None = None) -> Capsule:
        """Return the capsule of a recent build.

        Another user's build, one made with rights that the scope has lost since, and one that cites what the scope may
        no longer read, are treated as unknown.
        """
        found = unpack_capsule(await asyncio.to_thread(self._builds.load, build_id))
        asker = self._resolve(scope)
        same = (found.tenant, found.user) == (asker.tenant, asker.user)
        if not same or not set(found.groups) <= set(asker.groups):
            raise NotFound(f"no build {build_id!r} is stored here")
        cited = [each.citation for each in found.candidates if each.citation is not None]
        await self._check_readable(asker, [(each.collection, each.record_id) for each in cited], f"build {build_id!r}")
        return found

    async def _handle_removed_blocks(self, scope: Scope, near: Sequence[str], erased: Sequence[str]) -> Receipt:
        return await self.erasure.handle_removed_blocks(scope, near, erased)

    async def _check_answer(self, scope: Scope, result: ChatResult) -> None:
        cited = [(each.collection, each.memory_id) for each in result.citations]
        await self._check_readable(scope, cited, "the answer to this message")

    async def _check_readable(self, scope: Scope, cited: Sequence[tuple[str, str]], what: str) -> None:
        """Raise `NotFound` if the scope may not read one of these records now."""
        if await self.erasure.list_unreadable(scope, cited):
            raise NotFound(f"{what} is withheld: it cites something that is gone, or that you may no longer read")

    async def load_build(self, build_id: str, *, scope: Scope | None = None) -> tuple[Capsule, Ledger]:
        """Return the capsule of a recent build and its ledger, with an entry for every candidate."""
        capsule = await self.capsule(build_id, scope=scope)
        built = await asyncio.to_thread(self._replayer.rebuild, capsule)
        return capsule, built.ledger

    async def explain(self, build_id: str, candidate_id: str, *, scope: Scope | None = None) -> Explanation:
        """Explain the outcome of one candidate, and the smallest change that would have admitted it."""
        capsule = await self.capsule(build_id, scope=scope)
        return await asyncio.to_thread(self._replayer.explain, capsule, candidate_id)

    async def count_unembedded(self, collection: str, *, scope: Scope | None = None) -> int:
        """How many passages of a collection that the scope may read have no vectors yet."""
        backlog = self._routed_index
        known = isinstance(backlog, VectorBacklog)
        return await backlog.count_unembedded(self._resolve(scope), collection) if known else 0

    async def embed_rest(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Compute the vectors of all passages that were written without, of every tenant; returns how many.

        `progress` is called with the number of passages done, and of all.
        """
        return 0 if self.backfill is None else await self.backfill.finish(progress)

    async def close(self) -> None:
        """Flush and release the store."""
        self._closed = True
        if self.backfill is not None:
            await self.backfill.stop()
        try:
            await self.turns.settle()
            await self.outbox.stop()
            await self.workspace.finish()
        finally:
            await wiring.close_policy(self.policy)
            self._preparer.close()
            self._graph_cache.close()
            self._sessions.close()
            self._replies.close()
            self._blocks.close()
            await self._memory.close()
            await self._routed_index.close()

    async def wait_delivered(self, scope: Scope) -> bool:
        """Wait until what this scope said before can be recalled; not at all while the memory service is not normal."""
        is_normal = self.health.state() is HealthState.NORMAL
        return await self.outbox.wait_delivered(scope, self.settings.memory_catch_up_seconds if is_normal else 0)

    async def _save_build(self, capsule: Capsule) -> Degradation | None:
        """Store a build; a build that cannot be stored is still returned, with a degradation."""
        try:
            await asyncio.to_thread(self._builds.save, capsule.build_id, pack_capsule(capsule))
        except SourceError as failure:
            return Degradation(source="builds", reason=str(failure))
        cited = [(each.citation.collection, each.citation.record_id) for each in capsule.candidates if each.citation]
        owner = Scope(tenant=capsule.tenant, user=capsule.user, groups=capsule.groups)
        if self.erasure.was_erased(owner, cited):  # while this build used it
            await self.erasure.erase_unreadable(owner, cited)
        return None

    def _turn_parts(self) -> wiring.TurnParts:
        return wiring.TurnParts(
            memory=self.memory,
            health=self.health,
            redactor=self._redactor,
            secrets=self.secrets,
            clock=self._clock,
            registry=self.registry,
            speaker=self.scope,
            sink=self.outbox,
            summarizer=self._summarizer,
            sources=self._source_ports(),
        )

    def _query_builder_for(self, model: str) -> QueryContextBuilder:
        settings = self.settings.model_copy(update={"model": model})
        return wiring.query_builder(settings, self.searcher, self._redactor, self._clock, self.secrets)


def replay(data: bytes) -> tuple[Capsule, Ledger]:
    """Rebuild a capsule offline; raises `ReplayMismatch` unless the bytes are the same."""
    capsule = unpack_capsule(data)
    return capsule, wiring.capsule_replayer().replay(capsule).ledger


@asynccontextmanager
async def open_store(
    where: Path | str | Settings | None = None, *, embed_later: bool = True
) -> AsyncGenerator[Contexture]:
    """Open a store and everything around it.

    With `embed_later`, batches of more than 64 passages are written without vectors, so that they are found by words at
    once, and a background task computes them.

    async with contexture.open(".contexture") as ctx:
        built = await ctx.build("who repairs the pump?")
    """
    settings = _resolve_settings(where)
    if settings.home.is_file():
        raise InvalidRequest(f"'{settings.home}' is a file, not a folder; a store is a folder")
    encoders = wiring.encoders(settings)
    with wiring.lock_folder(settings):
        store = await wiring.index(settings, encoders)
        try:
            engine = Contexture(settings, store, encoders)
            await engine.workspace.catch_up()
            engine.outbox.start()
            if engine.backfill is not None and embed_later:
                engine.backfill.start()
            try:
                yield engine
            finally:
                await engine.close()
        finally:
            await store.close()


def _resolve_settings(where: Path | str | Settings | None) -> Settings:
    if isinstance(where, Settings):
        return where
    return Settings() if where is None else Settings(home=arguments.read_path(where))
