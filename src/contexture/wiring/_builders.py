"""From settings: the builders for chat turns, slash commands, research questions and workspaces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from contexture.adapters.llm.extractive import NAME as EXTRACTIVE
from contexture.adapters.llm.extractive import NO_MATCH_ANSWERS, CompareFunction
from contexture.adapters.prometheus import CacheMetrics, TurnMetrics, WorkspaceMetrics, watch_memory
from contexture.adapters.token_counters import counter_for, counter_of_build
from contexture.answer.cited import AnswerRecipe
from contexture.answer.grounding import SimilarityFunction
from contexture.builders.ask.build import AskContextBuilder
from contexture.builders.ask.compose import recompose_ask
from contexture.builders.ask.request import AskRecipe
from contexture.builders.clean import CleanerFactory
from contexture.builders.command.build import CommandContextBuilder
from contexture.builders.command.compose import recompose_command
from contexture.builders.command.request import ExperimentArm, Experiments, override_routing
from contexture.builders.plugin import BuilderPlugin, BuilderServices
from contexture.builders.query.compose import recompose_query
from contexture.builders.replay import CapsuleReplayer, RecomposeFunction
from contexture.builders.research.build import ResearchContextBuilder
from contexture.builders.research.compose import recompose_research
from contexture.builders.research.request import ResearchRecipe
from contexture.builders.sources import SourcePorts
from contexture.builders.turn.build import TurnContextBuilder
from contexture.builders.turn.compose import recompose_turn
from contexture.builders.turn.request import TurnRecipe
from contexture.builders.turn.summary import HistorySummarizer, SummarySink
from contexture.builders.workspace.build import WorkspaceContextBuilder
from contexture.builders.workspace.compose import recompose_workspace
from contexture.builders.workspace.config import ContextConfig, parse_config
from contexture.config import Settings
from contexture.errors import ContextError, InvalidRequest, UnknownAdapter
from contexture.memory.guard import GuardedMemory
from contexture.news.articles import ArticleFinder
from contexture.pages.values import PageFinder
from contexture.pipeline.fence import MaterialRole
from contexture.pipeline.knapsack import Packer
from contexture.ports import ChatModel, Clock, Health, MemoryService, Redactor, Secrets
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.search import HybridSearch
from contexture.text.language import detect_language
from contexture.types import Scope
from contexture.wiring._core import operator
from contexture.wiring.plugins import PluginGroup, built_in_plugins, load_builder
from contexture.workspace import BlockStore

QUERY: BuilderPlugin[Any] = BuilderPlugin(kind="query", recompose=recompose_query)
TURN: BuilderPlugin[Any] = BuilderPlugin(kind="turn", recompose=recompose_turn)
COMMAND: BuilderPlugin[Any] = BuilderPlugin(kind="command", recompose=recompose_command)
RESEARCH: BuilderPlugin[Any] = BuilderPlugin(kind="research", recompose=recompose_research)
ASK: BuilderPlugin[Any] = BuilderPlugin(kind="ask", recompose=recompose_ask)
WORKSPACE: BuilderPlugin[Any] = BuilderPlugin(kind="workspace", recompose=recompose_workspace)


def capsule_replayer(others: Mapping[str, RecomposeFunction] = MappingProxyType({})) -> CapsuleReplayer:
    """Create the replayer for capsules of every installed builder and of `others`, by kind.

    Raises `InvalidRequest` when one of them takes the kind of another.
    """
    if taken := sorted(built_in_plugins(PluginGroup.BUILDERS).keys() & others.keys()):
        raise InvalidRequest(f"the kind of capsule {taken[0]!r} belongs to Contexture; choose another name")

    @cache
    def find(kind: str) -> RecomposeFunction:
        if kind in others:
            return others[kind]
        try:
            return load_builder(kind).recompose
        except UnknownAdapter as failure:
            raise InvalidRequest(f"this capsule holds a build of kind {kind!r}: {failure}") from failure

    return CapsuleReplayer(recompose=find, counter_for=counter_of_build)


def builder_services(settings: Settings, finder: HybridSearch, cleaners: CleanerFactory) -> BuilderServices:
    """Return what builders of other packages work with."""
    return BuilderServices(
        search=finder,
        cleaners=cleaners,
        counter=counter_for(settings.counted_model),
        model=settings.counted_model,
        collection=settings.collection,
        max_tokens=settings.max_tokens,
        packer=Packer(settings.packer),
        deadline=settings.timeout_seconds,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnParts:
    """The dependencies of a turn builder, besides the settings."""

    memory: MemoryService
    health: Health
    redactor: Redactor
    secrets: Secrets
    clock: Clock
    registry: CollectorRegistry
    speaker: Scope
    sink: SummarySink | None = None
    summarizer: ChatModel | None = None
    sources: SourcePorts | None = None


def turn_builder(settings: Settings, parts: TurnParts) -> TurnContextBuilder:
    """Create the builder for chat turns; its health provider uses the state reported by the memory client."""
    recipe = turn_recipe(settings)
    metrics = TurnMetrics(parts.registry)
    return TurnContextBuilder(
        memory=parts.memory,
        token_counter=counter_for(settings.counted_model),
        redactor=parts.redactor,
        clock=parts.clock,
        metrics=metrics,
        health_provider=parts.health.state,
        on_degraded=_warn_degraded,
        secrets=parts.secrets,
        summaries=_session_summaries(parts, recipe, metrics),
        recipe=recipe,
        operator=operator(settings),
        deadline=_recall_deadline(settings),
        model=settings.counted_model,
        speaker=parts.speaker,
        sources=parts.sources,
    )


def _recall_deadline(settings: Settings) -> float:
    """Return how many seconds a turn waits for memories: little for a service elsewhere, which may hang."""
    is_remote = settings.turn_recipe == "standard" and bool(settings.memory_url)
    return min(settings.timeout_seconds, settings.memory_recall_seconds) if is_remote else settings.timeout_seconds


def _session_summaries(parts: TurnParts, recipe: TurnRecipe, metrics: TurnMetrics) -> HistorySummarizer | None:
    def report_loss(failure: ContextError) -> None:
        metrics.inc_degradation(type(failure).__name__)
        structlog.get_logger().warning("a session summary was not created by the model", reason=type(failure).__name__)

    if parts.sink is None:
        return None
    place = {"namespace": recipe.namespace, "universe": recipe.universe}
    return HistorySummarizer(parts.sink, model=parts.summarizer, on_lost=report_loss, **place)


_STANDARD_TOP_K = 64
_STANDARD_NEIGHBOURS = 1
_STANDARD_SPREAD = 0.03
_STANDARD_MEMORY_SHARE = 0.5  # of the room of a prompt, while history needs the rest


def turn_recipe(settings: Settings) -> TurnRecipe:
    """Return the turn recipe from the settings."""
    standard, seed = settings.turn_recipe == "standard", TurnRecipe()
    return TurnRecipe(
        packer=Packer(settings.packer),
        max_tokens=settings.turn_max_tokens,
        top_k=settings.memory_top_k or (_STANDARD_TOP_K if standard else seed.top_k),
        top_k_degraded=settings.memory_top_k_degraded,
        threshold=settings.memory_threshold,
        degraded_seconds=settings.degraded_seconds,
        near_duplicate=settings.turn_near_duplicate,
        neighbour_lift=settings.turn_neighbour_lift,
        neighbours=_STANDARD_NEIGHBOURS if standard else seed.neighbours,
        session_spread=_STANDARD_SPREAD if standard else seed.session_spread,
        namespace=settings.memory_namespace,
        universe=settings.memory_universe,
        speaker_labels=standard,
        corrections=standard,
        memory_share=_STANDARD_MEMORY_SHARE if standard else seed.memory_share,
        material_role=MaterialRole(settings.memory_role),
    )


def _warn_degraded(seconds: float) -> None:
    """Log a warning for people; the client has already reported the failure to the health monitor."""
    structlog.get_logger().warning(
        "the memory service could not be reached; fewer memories are recalled for a while", seconds=seconds
    )


def command_builder(
    settings: Settings, news: ArticleFinder, *, scanner: Redactor, secrets: Secrets, clock: Clock, speaker: Scope
) -> CommandContextBuilder:
    """Create the builder for commands, with its models and experiments from the settings."""
    return CommandContextBuilder(
        news=news,
        token_counter=counter_for(settings.counted_model),
        redactor=scanner,
        clock=clock,
        secrets=secrets,
        models=override_routing(settings.command_models),
        experiments=experiments(settings),
        operator=operator(settings),
        model=settings.counted_model,
        speaker=speaker,
        material_role=MaterialRole(settings.material_role),
    )


def experiments(settings: Settings) -> Experiments:
    """Return every experiment with its arms; raises `InvalidRequest` naming an invalid one."""
    try:
        return msgspec.convert(settings.command_experiments, dict[str, dict[str, ExperimentArm]])
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"CONTEXTURE_COMMAND_EXPERIMENTS cannot be read: {failure}") from failure


def research_builder(
    settings: Settings, pages: PageFinder, *, scanner: Redactor, secrets: Secrets, clock: Clock, speaker: Scope
) -> ResearchContextBuilder:
    """Create the builder over the pages of documents."""
    return ResearchContextBuilder(
        pages,
        settings.research_max_sources,
        settings.research_max_tokens,
        counter=counter_for(settings.counted_model),
        redactor=scanner,
        clock=clock,
        model=settings.counted_model,
        secrets=secrets,
        recipe=ResearchRecipe(material_role=MaterialRole(settings.material_role)),
        operator=operator(settings),
        deadline=settings.timeout_seconds,
        speaker=speaker,
    )


def ask_builder(
    settings: Settings, sources: SourcePorts, *, scanner: Redactor, secrets: Secrets, clock: Clock, speaker: Scope
) -> AskContextBuilder:
    """Create the builder for questions over everything."""
    return AskContextBuilder(
        sources,
        counter=counter_for(settings.counted_model),
        redactor=scanner,
        clock=clock,
        model=settings.counted_model,
        secrets=secrets,
        recipe=AskRecipe(packer=Packer(settings.packer), material_role=MaterialRole(settings.material_role)),
        operator=operator(settings),
        deadline=settings.timeout_seconds,
        max_tokens=settings.max_tokens,
        speaker=speaker,
    )


def text_similarities(embedders: Encoders) -> CompareFunction:
    """Return a function for the similarity of a sentence to each of some texts, across languages too."""

    async def compare(sentence: str, texts: Sequence[str]) -> list[float]:
        vectors = await embedders.question(sentence, detect_language(sentence))
        rows = await embedders.passages(texts, [detect_language(text) for text in texts])
        scores = [{name: float(row @ vectors[name]) for name, row in each.items() if name in vectors} for each in rows]
        return [found.calibrated if found else 0.0 for found in embedders.similarities(scores)]

    return compare


def text_similarity(embedders: Encoders) -> SimilarityFunction:
    """Return a function for the similarity of a sentence to the closest of some texts, across languages too."""
    compare = text_similarities(embedders)

    async def find_closest(sentence: str, texts: Sequence[str]) -> float:
        return max(await compare(sentence, texts), default=0.0)

    return find_closest


def answer_recipe(settings: Settings) -> AnswerRecipe:
    """Return the settings for answers with citations."""
    return AnswerRecipe(
        context_tokens=settings.research_max_tokens,
        answer_tokens=settings.chat_max_tokens,
        quoting=EXTRACTIVE,
        silence=frozenset(NO_MATCH_ANSWERS.values()),
    )


def workspace_builder(  # noqa: PLR0913 - every part it works with, by name
    settings: Settings,
    blocks: BlockStore,
    finder: HybridSearch,
    *,
    scanner: Redactor,
    secrets: Secrets,
    clock: Clock,
    speaker: Scope,
    registry: CollectorRegistry,
    summarizer: ChatModel | None = None,
) -> WorkspaceContextBuilder:
    """Create the builder for workspaces, with collectors and limits from the settings."""
    return WorkspaceContextBuilder(
        store=blocks,
        search=finder,
        token_counter=counter_for(settings.counted_model),
        redactor=scanner,
        clock=clock,
        secrets=secrets,
        config=workspace_config(settings),
        operator=operator(settings),
        summarizer=summarizer,
        deadline=settings.timeout_seconds,
        model=settings.counted_model,
        speaker=speaker,
        metrics=WorkspaceMetrics(registry),
    )


def cache_metrics(registry: CollectorRegistry, finder: HybridSearch) -> CacheMetrics:
    """Create metrics of how often a search was answered from the cache."""

    def read() -> tuple[int, int]:
        stats = finder.cache_stats()
        return stats.hits, stats.misses

    return CacheMetrics(registry, read)


def memory_metrics(registry: CollectorRegistry, health: Health, memory: GuardedMemory) -> None:
    """Create gauges of the memory service."""
    watch_memory(registry, lambda: (health.state(), memory.seconds_open, bool(memory.refusal)))


def workspace_config(settings: Settings) -> ContextConfig:
    """Return the default configuration with the changes of `CONTEXTURE_WORKSPACE`."""
    return parse_config(settings.workspace)
