"""The command builder: parse, resolve parameters, search articles, redact, compose, validate."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace as changed

from contexture.builders.clean import Cleaner, CleanerFactory
from contexture.builders.command import collect
from contexture.builders.command._parser import parse_command
from contexture.builders.command.compose import (
    CAPSULE_KIND,
    DOCUMENT_LANGS,
    MAX_SNIPPET_CHARS,
    CommandPromptPlan,
    ComposedCommand,
    compose_command,
)
from contexture.builders.command.request import (
    DEFAULT_ROUTING,
    MIN_LIMITS,
    AbTest,
    CommandLimits,
    CommandParams,
    CommandRequest,
    ExperimentArm,
    Experiments,
    Routing,
    assign_arm,
    parse_request,
    plan_graph,
    plan_memory,
    resolve_limits,
    resolve_params,
    search_text,
    select_models,
)
from contexture.builders.command.result import (
    CommandContext,
    CommandErrorFactory,
    Retrieval,
    command_error_boundary,
    params_to_json,
)
from contexture.builders.command.syntax import BOUNDS, WINDOWS, ArgumentKey, Command, ParsedCommand
from contexture.builders.telemetry import Stopwatch
from contexture.capsule import Capsule, make_capsule
from contexture.errors import InvalidRequest
from contexture.ledger import Ledger, Trace
from contexture.news.store import RECENCY
from contexture.pipeline.fence import FENCE_VERSION, MaterialRole, make_fence
from contexture.pipeline.masking import SecretMaskCache
from contexture.pipeline.redaction import Placeholders, RedactionOperator
from contexture.ports import Clock, Redactor, Secrets, TokenCounter
from contexture.resilience import Deadline
from contexture.retrieval.ranking import CONTRAST, LEXICAL
from contexture.types import Candidate, Scope

Context = Mapping[str, Any]
Rule = Callable[[Context], Iterator[str]]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def check_context(context: Context, *, strict_k: bool = False) -> None:
    """Raise `InvalidRequest` listing every rule that a context, as `json_form` gives it, breaks.

    A memory command needs no documents. Fewer than five are allowed unless `strict_k`.
    """
    broken = [f"{name}: {said}" for name, rule in RULES.items() for said in rule(context)]
    count = len(context["retrieval"]["docs"])
    if strict_k and not _is_memory_command(context) and count < collect.MIN_DOCUMENTS:
        broken.append(f"k_final: {count} documents are fewer than {collect.MIN_DOCUMENTS}")
    if broken:
        raise InvalidRequest("; ".join(broken))


def _is_memory_command(context: Context) -> bool:
    return context["command"] in (command.value for command in Command if command.is_memory)


def _check_command(context: Context) -> Iterator[str]:
    if context["command"] not in (command.value for command in Command):
        yield f"{context['command']!r} is not supported"


def _check_window(context: Context) -> Iterator[str]:
    for window in (context["params"]["window"], context["retrieval"]["window"]):
        if window not in WINDOWS:
            yield f"{window!r} is not one of {', '.join(WINDOWS)}"


def _check_docs(context: Context) -> Iterator[str]:
    if not context["retrieval"]["docs"] and not _is_memory_command(context):
        yield "there are none"


def _check_k_final(context: Context) -> Iterator[str]:
    retrieval, (low, high) = context["retrieval"], BOUNDS[ArgumentKey.K]
    asked = context["params"]["k_final"]
    if not retrieval["docs"] and not low <= asked <= high:
        yield f"{asked} was asked for; it lies between {low} and {high}"
    if retrieval["docs"] and asked != len(retrieval["docs"]):
        yield f"`params` has {asked}, which is not the number of documents, {len(retrieval['docs'])}"
    if retrieval["k_final"] != len(retrieval["docs"]):
        yield f"{retrieval['k_final']} is not the number of documents, {len(retrieval['docs'])}"
    if retrieval["k_final"] > high:
        yield f"{retrieval['k_final']} is above {high}"


def _check_documents(context: Context) -> Iterator[str]:
    for at, doc in enumerate(context["retrieval"]["docs"]):
        if not doc["title"].strip():
            yield f"docs[{at}] has no title"
        if not _is_date(doc["date"]):
            yield f"docs[{at}] is dated {doc['date']!r} instead of YYYY-MM-DD"
        if doc["lang"] not in DOCUMENT_LANGS:
            yield f"docs[{at}] is in {doc['lang']!r} instead of {' or '.join(DOCUMENT_LANGS)}"
        if len(doc["snippet"]) > MAX_SNIPPET_CHARS:
            yield f"docs[{at}] has a snippet of {len(doc['snippet'])} characters; at most {MAX_SNIPPET_CHARS} are shown"


def _is_date(text: object) -> bool:
    if not isinstance(text, str) or not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_models(context: Context) -> Iterator[str]:
    if not context["models"].get("primary"):
        yield "no primary model"


def _check_limits(context: Context) -> Iterator[str]:
    for name, floor in MIN_LIMITS.items():
        if context["limits"][name] < floor:
            yield f"{name} is {context['limits'][name]}, below {floor}"


def _check_telemetry(context: Context) -> Iterator[str]:
    if not context["telemetry"].get("correlation_id"):
        yield "no correlation_id"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "command": _check_command,
        "window": _check_window,
        "docs": _check_docs,
        "k_final": _check_k_final,
        "documents": _check_documents,
        "models": _check_models,
        "limits": _check_limits,
        "telemetry": _check_telemetry,
    }
)
"""Every rule by the name under which it is reported."""


DOCUMENTS_SECTION = "documents"
_EXTRA_DOCUMENTS = 2  # documents retrieved beyond the requested number, so that the ledger shows near misses
_REWEIGHED_POOL = 20  # the same, when an experiment arm reweighs the scores


@dataclass(frozen=True, kw_only=True, slots=True)
class _ResolvedCommand:
    """A parsed command with every default resolved; not yet redacted."""

    request: CommandRequest
    parsed: ParsedCommand
    params: CommandParams
    limits: CommandLimits
    ab_test: AbTest
    arm: ExperimentArm
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommandBuild:
    """Redacted parameters, composed prompt, ledger and capsule of one build."""

    params: CommandParams
    composed: ComposedCommand
    ledger: Ledger
    capsule: Capsule


class CommandContextBuilder:
    """Builds the context that executing a slash command over the news needs.

    `models` are the models of each command, `experiments` the changes of each experiment arm. `speaker` is the scope of
    calls that pass none. `material_role` is the role of the message with the articles.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        *,
        news: collect.ArticleFinder,
        token_counter: TokenCounter,
        redactor: Redactor,
        clock: Clock,
        secrets: Secrets | None = None,
        models: Routing = DEFAULT_ROUTING,
        experiments: Experiments | None = None,
        operator: Callable[[], RedactionOperator] = Placeholders,
        model: str = "",
        speaker: Scope | None = None,
        material_role: MaterialRole = MaterialRole.USER,
    ) -> None:
        self._news = news
        self._counter = token_counter
        self._cleaners = CleanerFactory(redactor=redactor, secrets=SecretMaskCache(secrets), operator=operator)
        self._clock = clock
        self._models = models
        self._experiments = experiments or {}
        self._model = model or token_counter.encoding
        self._speaker = speaker or Scope.local()
        self._material_role = material_role

    async def build_context(
        self, raw_input: CommandRequest | Mapping[str, Any], *, scope: Scope | None = None, now: datetime | None = None
    ) -> CommandContext:
        """The context of a command, as `scope` may read it; `now` replaces the clock, which is otherwise read once.

        Raises a `CommandError`, whose `to_dict` is the error response: `CommandRefused` for a request that the caller
        can fix, `NothingFound` after every recovery step that the flags allow, `CommandUnavailable` or `CommandFailed`.
        """
        moment, who = now or self._clock.now(), scope or self._speaker
        with command_error_boundary(raw_input, who, moment) as answer:
            return await self._build(parse_request(raw_input), who, moment, answer)

    async def _build(
        self, request: CommandRequest, scope: Scope, now: datetime, answer: CommandErrorFactory
    ) -> CommandContext:
        trace, watch = Trace(), Stopwatch()
        with watch.phase("retrieve"):
            cleaner = self._cleaners.make(trace)
            asked = self._resolve(request, scope, tuple(map(cleaner.mask_text, request.line)))
            retrieved = await self._retrieve(asked, scope, now, trace)
        with watch.phase("compose"):
            made = self._compose(asked, retrieved, scope, now, cleaner)
            if not made.composed.documents and not asked.parsed.command.is_memory:
                raise answer.nothing_found(retrieved.steps)
            built = self._make_context(asked, retrieved, made, watch)
            check_context(built.json_form(), strict_k=request.flags.strict_k)
        return built

    def _resolve(self, request: CommandRequest, scope: Scope, line: tuple[str, ...]) -> _ResolvedCommand:
        """Parse the line and resolve experiment arm, parameters and limits."""
        parsed = parse_command(*line)
        ab_test, arm = assign_arm(request.ab_test or AbTest(), self._experiments, scope)
        return _ResolvedCommand(
            request=request,
            parsed=parsed,
            params=resolve_params(parsed, request, arm),
            limits=resolve_limits(request),
            ab_test=ab_test,
            arm=arm,
            text=search_text(parsed),
        )

    async def _retrieve(
        self, asked: _ResolvedCommand, scope: Scope, now: datetime, trace: Trace
    ) -> collect.RetrievedArticles:
        """Articles found within the command's time limit.

        Memory commands do not use recovery; `/memory store` does not search at all.
        """
        search = collect.initial_search(
            asked.params, more=_EXTRA_DOCUMENTS if asked.arm.lexical is None else _REWEIGHED_POOL
        )
        if asked.parsed.command is Command.STORE:
            return collect.RetrievedArticles(found=(), search=search, steps=())
        deadline = Deadline(asked.limits.timeout_s)
        climb = collect.RecoverySearch(
            self._news, search, scope=scope, text=asked.text, now=now, deadline=deadline, trace=trace
        )
        ladder = () if asked.parsed.command.is_memory else collect.RECOVERY_RULES
        return await climb.retrieve(flags=asked.request.flags, ladder=ladder)

    def _compose(
        self,
        asked: _ResolvedCommand,
        retrieved: collect.RetrievedArticles,
        scope: Scope,
        now: datetime,
        cleaner: Cleaner,
    ) -> _CommandBuild:
        params, trace = _clean_params(cleaner, asked.params), cleaner.trace
        raw = [
            cleaner.mask_candidate(changed(_reweigh(candidate, asked.arm), section=DOCUMENTS_SECTION))
            for _, found in retrieved.found
            for candidate in found.candidates
        ]
        clean = cleaner.clean_candidates(raw)
        plan = CommandPromptPlan(
            text=cleaner.clean_prompt_text(asked.text, make_fence(self._counter)),
            lang=params.lang,
            k=retrieved.search.k,
            max_tokens=asked.limits.max_tokens,
            articles=tuple(collect.make_facts(number, found, now) for number, found in retrieved.found),
            material_role=self._material_role,
            fence_version=FENCE_VERSION,
        )
        composed = compose_command(plan, clean, counter=self._counter, trace=trace)
        addresses = {found.article.article_id: found.article.url for _, found in retrieved.found}
        documents = tuple(
            replace(each, url=cleaner.clean_or(addresses[each.article_id] or None, "")) for each in composed.documents
        )
        _record_degradations(retrieved, composed, trace, needed=not asked.parsed.command.is_memory)
        ledger = trace.finish(raw)
        said = {"command": asked.parsed.command.value, "params": params_to_json(params)}
        capsule = make_capsule(
            CAPSULE_KIND,
            scope=scope,
            now=now,
            request={**said, "plan": asdict(plan)},
            settings={"model": self._model, "encoding": self._counter.encoding},
            candidates=clean,
            ledger=ledger,
            messages=composed.messages,
        )
        return _CommandBuild(
            params=params, composed=replace(composed, documents=documents), ledger=ledger, capsule=capsule
        )

    def _make_context(
        self, asked: _ResolvedCommand, retrieved: collect.RetrievedArticles, made: _CommandBuild, watch: Stopwatch
    ) -> CommandContext:
        search, command = retrieved.search, asked.parsed.command
        documents = len(made.composed.documents)
        return CommandContext(
            command=command,
            params=replace(made.params, k_final=documents) if documents else made.params,
            retrieval=_make_retrieval(search, made),
            graph=plan_graph(asked.parsed),
            memory=plan_memory(command, made.params),
            models=select_models(command, self._models),
            limits=asked.limits,
            version=asked.request.version,
            ab_test=asked.ab_test,
            recovery=retrieved.steps,
            messages=made.composed.messages,
            tokens=made.composed.tokens,
            ledger=made.ledger,
            capsule=made.capsule,
            now=made.capsule.now,
            asked=asked.parsed,
            answer_lang=asked.request.answer_lang or "",
            timings=watch.seconds,
        )


def _clean_params(cleaner: Cleaner, params: CommandParams) -> CommandParams:
    def clean_all(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(map(cleaner.clean_text, names))

    return replace(
        params,
        sources=clean_all(params.sources),
        domains=clean_all(params.domains),
        topic=params.topic and cleaner.clean_text(params.topic),
        entity=params.entity and cleaner.clean_text(params.entity),
        query=params.query and cleaner.clean_text(params.query),
    )


def _make_retrieval(search: collect.ArticleSearch, made: _CommandBuild) -> Retrieval:
    """How the documents were found; `sources` are the redacted parameters, or None when recovery dropped them."""
    named = (*(made.params.sources or ()), *(made.params.domains or ()))
    return Retrieval(
        docs=made.composed.documents,
        window=search.window,
        lang=search.langs[0] if search.langs else "auto",
        sources=tuple(dict.fromkeys(named)) or None if search.sources else None,
        rerank_enabled=search.rerank,
    )


def _reweigh(candidate: Candidate, arm: ExperimentArm) -> Candidate:
    """The candidate rescored with the lexical share of an experiment arm; unchanged when it is scored by recency."""
    if arm.lexical is None or RECENCY in candidate.signals:
        return candidate
    words, meaning = candidate.signals.get(LEXICAL, 0.0), candidate.signals.get(CONTRAST, 0.0)
    return changed(candidate, score=max(0.0, arm.lexical * words + (1 - arm.lexical) * meaning))


def _record_degradations(
    retrieved: collect.RetrievedArticles, composed: ComposedCommand, trace: Trace, *, needed: bool
) -> None:
    """Record as degradations all recovery steps up to the last that found documents, and too few documents."""
    useful = max((at for at, step in enumerate(retrieved.steps, start=1) if step.found), default=0)
    if useful:
        trace.add_degradation("recovery", ", ".join(step.done for step in retrieved.steps[:useful]))
    count = len(composed.documents)
    if needed and count < collect.MIN_DOCUMENTS:
        trace.add_degradation(
            collect.ARTICLES_SOURCE,
            f"only {count} of at least {collect.MIN_DOCUMENTS} documents were found",
        )
