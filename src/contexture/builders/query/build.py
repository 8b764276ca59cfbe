"""The query builder: mask and redact the question, search, redact candidates, compose, seal a capsule."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from contexture.builders.clean import Cleaner, CleanerFactory
from contexture.builders.query.compose import CAPSULE_KIND, ComposedQuery, compose_query
from contexture.builders.query.request import QueryRecipe, QueryRequest, query_to_json
from contexture.builders.query.result import QueryContext
from contexture.builders.record_blocks import join_messages
from contexture.builders.telemetry import Stopwatch
from contexture.capsule import Capsule, make_capsule
from contexture.errors import InvalidRequest
from contexture.filters import check_form
from contexture.ledger import Trace
from contexture.pipeline.candidates import CandidateSource, collect_candidates
from contexture.pipeline.fence import PromptFence, make_fence
from contexture.pipeline.masking import SecretMaskCache
from contexture.pipeline.redaction import Placeholders, RedactionOperator
from contexture.ports import Clock, Redactor, Secrets, TokenCounter
from contexture.retrieval.candidates import candidate_from_passage
from contexture.retrieval.search import HybridSearch
from contexture.types import BuiltContext, Candidate, Scope

_MIN_POOL, _MAX_POOL = 32, 400
_TOKENS_PER_CANDIDATE = 60  # a passage has about a hundred


class QueryContextBuilder:
    """Builds a context for a plain question over one collection."""

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        *,
        search: HybridSearch,
        counter: TokenCounter,
        redactor: Redactor,
        clock: Clock,
        model: str,
        secrets: Secrets | None = None,
        recipe: QueryRecipe | None = None,
        operator: Callable[[], RedactionOperator] = Placeholders,
        deadline: float = 10.0,
    ) -> None:
        self._search = search
        self._counter = counter
        self._cleaners = CleanerFactory(redactor=redactor, secrets=SecretMaskCache(secrets), operator=operator)
        self._clock = clock
        self._model = model
        self._recipe = recipe or QueryRecipe()
        self._deadline = deadline

    async def build(self, request: QueryRequest, *, scope: Scope, now: datetime | None = None) -> QueryContext:
        """The context for `request`, as `scope` may read it; `now` replaces the clock, which is otherwise read once.

        Known secrets are masked in the question before it is searched, and in all candidates.
        """
        moment, trace, watch = now or self._clock.now(), Trace(), Stopwatch()
        cleaner = self._cleaners.make(trace)
        with watch.phase("redact_query"):
            question = cleaner.mask_text(request.query)
            cleaned = _clean_request(request, question, cleaner, make_fence(self._counter))
        with watch.phase("collect"):
            source = CandidateSource(
                ask=lambda: self._find_candidates(cleaned, question, cleaner, scope, moment),
                timeout_seconds=self._deadline,
            )
            raw = await collect_candidates({"search": source}, deadline=self._deadline, trace=trace)
        with watch.phase("redact"):
            clean = cleaner.clean_candidates(raw)
        with watch.phase("compose"):
            composed = compose_query(cleaned, clean, counter=self._counter, recipe=self._recipe, trace=trace)
        ledger = trace.finish(raw)
        capsule = make_capsule(
            CAPSULE_KIND,
            scope=scope,
            now=moment,
            request=query_to_json(replace(cleaned, where=cleaner.clean_filter(cleaned.where))),
            settings={"model": self._model, "encoding": self._counter.encoding, "recipe": asdict(self._recipe)},
            candidates=clean,
            ledger=ledger,
            messages=composed.messages,
        )
        return QueryContext(context=self._make_context(composed, capsule, watch), ledger=ledger, capsule=capsule)

    async def _find_candidates(
        self, request: QueryRequest, question: str, cleaner: Cleaner, scope: Scope, now: datetime
    ) -> Sequence[Candidate]:
        pool, rules = pool_size(request.max_tokens), cleaner.redactor.rules
        found = await self._search.search(
            scope, request.collection, question, where=request.where, pool=pool, trace=cleaner.trace, now=now
        )
        return [candidate_from_passage(each, request.collection, rules, cleaner.mask) for each in found]

    def _make_context(self, composed: ComposedQuery, capsule: Capsule, watch: Stopwatch) -> BuiltContext:
        return BuiltContext(
            build_id=capsule.build_id,
            messages=composed.messages,
            text=join_messages(composed.messages),
            tokens=composed.tokens,
            token_counts=composed.token_counts,
            citations=tuple(citation for block in composed.found for citation in block.citations),
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            timings=watch.seconds,
        )


def _clean_request(request: QueryRequest, question: str, cleaner: Cleaner, fence: PromptFence) -> QueryRequest:
    """The request with question and system prompt cleaned; raises `InvalidRequest` when it cannot be built."""
    if not question.strip():
        raise InvalidRequest("the query is empty")
    if request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens must be at least 1, not {request.max_tokens}")
    if request.where is not None:
        check_form(request.where)
    return replace(
        request,
        query=cleaner.clean_prompt_text(question, fence),
        system=fence.inline(cleaner.mask_text(request.system)),
    )


def pool_size(tokens: int) -> int:
    """How many candidates to search for a token budget: more than fit, within fixed bounds."""
    return min(max(_MIN_POOL, tokens // _TOKENS_PER_CANDIDATE), _MAX_POOL)
