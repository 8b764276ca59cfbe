"""Builders of other packages: what such a package registers, what its builder is given, and what it returns.

A builder collects candidates, cleans and composes them, and seals a capsule; `pipeline` has the steps. It needs nothing
above `contexture.builders`: neither adapters nor wiring.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from contexture.builders.clean import Cleaner, CleanerFactory
from contexture.builders.query.result import QueryContextJson
from contexture.builders.replay import RecomposeFunction
from contexture.capsule import Capsule
from contexture.errors import BrokenPromise, InvalidRequest
from contexture.json_objects import describe_problems
from contexture.ledger import Ledger
from contexture.pipeline.candidates import CandidateSource, collect_candidates
from contexture.pipeline.knapsack import Packer
from contexture.ports import TokenCounter
from contexture.results import JsonResult
from contexture.retrieval.candidates import candidate_from_passage
from contexture.retrieval.search import HybridSearch
from contexture.types import BuiltContext, Candidate, ChatMessage, Citation, Filter, Message, Scope

R = TypeVar("R", bound=BaseModel)
R_contra = TypeVar("R_contra", bound=BaseModel, contravariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedContext:
    """A composed prompt; `unlimited` is the number of tokens that it would have without a limit."""

    messages: tuple[Message, ...]
    tokens: int
    token_counts: Mapping[str, int]
    citations: tuple[Citation, ...]
    unlimited: int


class PluginContextJson(QueryContextJson):
    """The context of a builder of another package."""

    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginContext(JsonResult):
    """A context built by a builder of another package, the ledger that explains it, and the capsule that rebuilds it.

    `max_tokens` is the budget it was built for.
    """

    context: BuiltContext
    ledger: Ledger
    capsule: Capsule
    max_tokens: int

    def json_form(self) -> PluginContextJson:
        """The context without timings, so that equal builds give equal bytes."""
        context = self.context
        return {
            "kind": self.capsule.kind,
            "build_id": context.build_id,
            "messages": cast("tuple[ChatMessage, ...]", context.messages),
            "text": context.text,
            "tokens": context.tokens,
            "token_counts": context.token_counts,
            "max_tokens": self.max_tokens,
            "encoding": context.encoding,
            "exact": context.exact,
            "citations": context.citations,
            "ledger": self.ledger.entries,
            "degradations": self.ledger.degradations,
            "digest": self.capsule.digest,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BuilderServices:
    """What a builder works with: search, cleaning and token counts, and the defaults that the settings give.

    `cleaners.make(trace)` gives the cleaner of one build. `model` names the tokenizer of `counter`; a capsule stores it
    in its settings. `deadline` is in seconds.
    """

    search: HybridSearch
    cleaners: CleanerFactory
    counter: TokenCounter
    model: str
    collection: str
    max_tokens: int
    packer: Packer
    deadline: float

    async def find_candidates(
        self,
        question: str,
        *,
        scope: Scope,
        cleaner: Cleaner,
        pool: int,
        collection: str | None = None,
        where: Filter | None = None,
    ) -> list[Candidate]:
        """Passages that match the question, as `scope` may read them, known secrets masked and not yet redacted.

        A search that fails or takes longer than the deadline is a degradation, and gives none. Raises `RequestError`
        for what the caller can fix, such as an unknown collection.
        """
        name, rules = collection or self.collection, cleaner.redactor.rules

        async def ask() -> Sequence[Candidate]:
            found = await self.search.search(scope, name, question, where=where, pool=pool, trace=cleaner.trace)
            return [candidate_from_passage(each, name, rules, cleaner.mask) for each in found]

        source = CandidateSource(ask=ask, timeout_seconds=self.deadline)
        return await collect_candidates({"search": source}, deadline=self.deadline, trace=cleaner.trace)

    def finish(self, composed: ComposedContext, capsule: Capsule, ledger: Ledger, *, max_tokens: int) -> PluginContext:
        """The result of a build, from its prompt, capsule and ledger."""
        context = BuiltContext(
            build_id=capsule.build_id,
            messages=composed.messages,
            text="\n\n".join(str(message["content"]) for message in composed.messages),
            tokens=composed.tokens,
            token_counts=composed.token_counts,
            citations=composed.citations,
            encoding=self.counter.encoding,
            exact=self.counter.exact,
        )
        return PluginContext(context=context, ledger=ledger, capsule=capsule, max_tokens=max_tokens)


class BuildFunction(Protocol[R_contra]):
    """Builds one kind of context."""

    def __call__(
        self, services: BuilderServices, request: R_contra, *, scope: Scope, now: datetime
    ) -> Awaitable[PluginContext]:
        """The context for `request`, as `scope` may read it; `now` is the only clock.

        Its capsule has the kind of the builder, and contains redacted candidates only.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BuilderPlugin(Generic[R]):
    """A builder as a package registers it in the entry point group `contexture.builders`, under its kind.

    `request` is the model of its requests, from which OpenAPI is written. `recompose` composes the prompt of one of its
    capsules again. The builders of Contexture itself have calls of their own, and no `build` here.
    """

    kind: str
    recompose: RecomposeFunction
    request: type[R] | None = None
    build: BuildFunction[R] | None = None

    async def run(
        self, services: BuilderServices, given: Mapping[str, Any] | BaseModel, *, scope: Scope, now: datetime
    ) -> PluginContext:
        """Check the request, build its context, and check what was built.

        Raises `InvalidRequest`, naming the fields, for a request that the model refuses, and `BrokenPromise` for a
        context that breaks the contract of `BuildFunction`.
        """
        if self.request is None or self.build is None:
            raise InvalidRequest(f"a context of kind {self.kind!r} has a call of its own")
        built = await self.build(services, parse_request(self.request, given), scope=scope, now=now)
        self._check(built, scope)
        return built

    def _check(self, built: object, scope: Scope) -> None:
        if not isinstance(built, PluginContext):
            raise BrokenPromise(f"the builder {self.kind!r} returned a {type(built).__name__}, not a PluginContext")
        capsule = built.capsule
        if capsule.kind != self.kind or (capsule.tenant, capsule.user) != (scope.tenant, scope.user):
            raise BrokenPromise(f"the builder {self.kind!r} sealed a capsule of another kind or for another user")
        if raw := next((each.id for each in capsule.candidates if not each.redacted), None):
            raise BrokenPromise(f"the builder {self.kind!r} did not redact candidate {raw!r}")
        if built.context.tokens > built.max_tokens:
            raise BrokenPromise(
                f"the builder {self.kind!r} built {built.context.tokens} tokens and the budget is {built.max_tokens}"
            )


def parse_request(model: type[R], given: Mapping[str, Any] | BaseModel) -> R:
    """A request as its model; raises `InvalidRequest` naming the fields that do not fit."""
    if isinstance(given, model):
        return given
    try:
        return model.model_validate(given if isinstance(given, BaseModel) else dict(given))
    except ValidationError as failure:
        raise InvalidRequest(describe_problems(failure.errors(include_url=False))) from failure
