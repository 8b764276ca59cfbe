"""The builder for a plain query: search, redact, compose, explain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from contexture.builders.query.compose import Composed, compose
from contexture.builders.query.render import text_of
from contexture.builders.query.request import QueryRecipe, QueryRequest, request_to_json
from contexture.capsule import Box, Capsule
from contexture.errors import InvalidRequest
from contexture.filters import check_form, filter_shown
from contexture.ledger import Ledger, Trace
from contexture.pipeline.collect import Source, collect
from contexture.pipeline.known import KnownSecrets
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator, Placeholders
from contexture.pipeline.redact import redact, redact_text
from contexture.ports import Clock, Redactor, Secrets, TokenCounter
from contexture.retrieval.candidates import candidate_of
from contexture.retrieval.prepare import mended
from contexture.retrieval.search import HybridSearch
from contexture.types import BuiltContext, Candidate, Scope

_POOL_LEAST, _POOL_MOST = 32, 400
_POOL_TOKENS = 60  # a passage is about a hundred


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryContext:
    """A built context, the ledger that explains it, and the capsule that rebuilds it."""

    context: BuiltContext
    ledger: Ledger
    capsule: Capsule


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
        operator: Callable[[], Operator] = Placeholders,
        deadline: float = 10.0,
    ) -> None:
        self._search = search
        self._counter = counter
        self._redactor = redactor
        self._clock = clock
        self._model = model
        self._known = KnownSecrets(secrets)
        self._recipe = recipe or QueryRecipe()
        self._operator = operator
        self._deadline = deadline

    async def build(self, request: QueryRequest, *, scope: Scope, now: datetime | None = None) -> QueryContext:
        """The context for `request`, as `scope` may see it; the clock is read once, or given.

        Known secrets are masked before anyone reads the question, and in everything that is found.
        """
        moment, mask = now or self._clock.now(), self._known.mask()
        trace, operator, timings = Trace(), self._operator(), _Stopwatch()
        with timings("redact_query"):
            question = mask.mask(mended(request.query))
            asked = self._safe(request, question, mask, operator)
        with timings("collect"):
            source = Source(ask=lambda: self._candidates(asked, question, mask, scope, trace), patience=self._deadline)
            raw = await collect({"search": source}, deadline=self._deadline, trace=trace)
        with timings("redact"):
            clean = redact(raw, self._redactor, operator, trace)
        with timings("compose"):
            composed = compose(asked, clean, counter=self._counter, recipe=self._recipe, trace=trace)
        ledger = trace.finish(raw)
        kept = self._fit_to_keep(asked, mask, operator)
        capsule = self._capsule(kept, scope, moment, clean, ledger, composed)
        return QueryContext(context=self._context(composed, capsule, timings), ledger=ledger, capsule=capsule)

    def _safe(self, request: QueryRequest, question: str, mask: Mask, operator: Operator) -> QueryRequest:
        """The request with a question fit to be shown; raises what the caller can mend."""
        if not question.strip():
            raise InvalidRequest("the query is empty")
        if request.max_tokens < 1:
            raise InvalidRequest(f"max_tokens must be at least 1, not {request.max_tokens}")
        if request.where is not None:
            check_form(request.where)
        redacted = redact_text(question, self._redactor, operator)
        return replace(request, query=redacted.text, system=mask.mask(mended(request.system)))

    def _fit_to_keep(self, request: QueryRequest, mask: Mask, operator: Operator) -> QueryRequest:
        """The request once its filter has searched, which takes the values as they are."""
        if request.where is None:
            return request
        shown = filter_shown(request.where, lambda text: redact_text(mask.mask(text), self._redactor, operator).text)
        return replace(request, where=shown)

    async def _candidates(
        self, request: QueryRequest, question: str, mask: Mask, scope: Scope, trace: Trace
    ) -> Sequence[Candidate]:
        found = await self._search.search(
            scope, request.collection, question, where=request.where, pool=pool_for(request.max_tokens), trace=trace
        )
        return [candidate_of(each, request.collection, self._redactor.rules, mask) for each in found]

    def _context(self, composed: Composed, capsule: Capsule, timings: _Stopwatch) -> BuiltContext:
        return BuiltContext(
            build_id=f"ctx-{capsule.seal[:12]}",
            messages=composed.messages,
            text=text_of(composed.messages),
            tokens=composed.tokens,
            token_counts=composed.token_counts,
            citations=tuple(citation for block in composed.found for citation in block.citations),
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            timings=timings.seconds,
        )

    def _capsule(
        self,
        request: QueryRequest,
        scope: Scope,
        now: datetime,
        candidates: Sequence[Candidate],
        ledger: Ledger,
        composed: Composed,
    ) -> Capsule:
        box = Box(
            kind="query",
            scope=scope,
            now=now,
            request=request_to_json(request),
            settings={"model": self._model, "recipe": asdict(self._recipe)},
        )
        return box.shut(candidates, ledger, composed.messages)


def pool_for(tokens: int) -> int:
    """How many passages to look at for a budget: more than fits, within reason."""
    return min(max(_POOL_LEAST, tokens // _POOL_TOKENS), _POOL_MOST)


class _Stopwatch:
    """Seconds by phase; kept apart from everything that a replay compares."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase = ""
        self._start = 0.0

    def __call__(self, phase: str) -> _Stopwatch:
        self._phase = phase
        return self

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self._phase] = time.perf_counter() - self._start
