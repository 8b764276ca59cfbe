"""The builder for research questions: search pages, redact, fit, number, explain."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from contexture.builders.research.capsule import KIND
from contexture.builders.research.clean import Cleaner
from contexture.builders.research.compose import Composed, compose
from contexture.builders.research.estimate import estimate
from contexture.builders.research.pages import Pages
from contexture.builders.research.render import block
from contexture.builders.research.request import (
    MAX_SOURCES,
    MAX_TOKENS,
    MOST_RESULTS,
    ResearchRecipe,
    ResearchRequest,
    SearchMode,
    checked,
    flags_of,
    request_to_json,
)
from contexture.builders.research.results import deduplicate, result_of
from contexture.builders.research.trim import trimmed
from contexture.builders.research.values import ResearchContext, SourceDocument
from contexture.builders.research.variants import cited
from contexture.capsule import Box, Capsule
from contexture.errors import RedactionFailed, UnknownPage
from contexture.filters import filter_shown
from contexture.ledger import Ledger, Trace
from contexture.pages.values import StoredPage
from contexture.pipeline.collect import Source, collect
from contexture.pipeline.known import KnownSecrets
from contexture.pipeline.operators import Operator, Placeholders
from contexture.pipeline.scans import RememberedScans
from contexture.ports import Clock, Redactor, Secrets, TokenCounter
from contexture.types import Candidate, Filter, Scope

SOURCE = "pages"


@dataclass(kw_only=True, slots=True)
class _Build:
    """One build while it runs."""

    request: ResearchRequest
    scope: Scope
    now: datetime
    cleaner: Cleaner
    question: str
    stored: dict[str, StoredPage] = field(default_factory=dict[str, StoredPage])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def timed(self, phase: str) -> Generator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - start


class ResearchContextBuilder:
    """Builds a numbered, cited context for a research question over the pages of documents.

    A context shows at most `max_sources` pages in at most `max_tokens` tokens, counted on its text with the headers.
    `speaker` is who asks where a call does not say so.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        pages: Pages,
        max_sources: int = MAX_SOURCES,
        max_tokens: int = MAX_TOKENS,
        *,
        counter: TokenCounter,
        redactor: Redactor,
        clock: Clock,
        model: str = "",
        secrets: Secrets | None = None,
        recipe: ResearchRecipe | None = None,
        operator: Callable[[], Operator] = Placeholders,
        deadline: float = 10.0,
        speaker: Scope | None = None,
    ) -> None:
        self.max_sources = max_sources
        self.max_tokens = max_tokens
        self._pages = pages
        self._counter = counter
        self._redactor = RememberedScans(redactor)
        self._clock = clock
        self._model = model or counter.encoding
        self._known = KnownSecrets(secrets)
        self._recipe = recipe or ResearchRecipe()
        self._operator = operator
        self._deadline = deadline
        self._speaker = speaker or Scope.local()

    async def build_context(
        self,
        query: str,
        num_results: int = 10,
        include_text: bool = True,  # noqa: FBT001, FBT002 - callers pass these by position
        include_visual: bool = True,  # noqa: FBT001, FBT002 - same
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
        max_tokens: int | None = None,
        where: Filter | None = None,
    ) -> ResearchContext:
        """The context for a question, as `scope` may see it; the clock is read once, or given.

        `max_tokens` and `where` hold for this question only. Raises what the caller can mend, and `RedactionFailed`
        when the question cannot be read; a search that fails is a degradation.
        """
        request = ResearchRequest(
            query=query,
            num_results=num_results,
            include_text=include_text,
            include_visual=include_visual,
            max_sources=self.max_sources,
            max_tokens=self.max_tokens if max_tokens is None else max_tokens,
            where=where,
        )
        trace = Trace()
        build = self._begin(checked(request), scope, now, trace)
        with build.timed("collect"):
            source = Source(ask=lambda: self._found(build), patience=self._deadline)
            raw = await collect({SOURCE: source}, deadline=self._deadline, trace=trace)
        with build.timed("redact"):
            clean = build.cleaner.pages(raw)
        with build.timed("compose"):
            composed = compose(build.request, clean, counter=self._counter, recipe=self._recipe, trace=trace)
            sources = self._sources(build, composed)
        ledger = trace.finish(raw)
        return self._result(build, composed, sources, ledger, self._capsule(build, composed, clean, ledger))

    async def search(
        self, query: str, num_results: int = 10, search_mode: str = SearchMode.HYBRID, *, scope: Scope | None = None
    ) -> list[dict[str, Any]]:
        """The pages that a question finds as plain objects, best first: document, page, score, file and metadata."""
        text, visual = flags_of(search_mode)
        request = ResearchRequest(
            query=query, num_results=num_results, include_text=text, include_visual=visual, max_sources=MOST_RESULTS
        )
        build = self._begin(checked(request), scope, None, Trace())
        clean = build.cleaner.pages(await self._found(build))
        found = [(build.cleaner.source(build.stored[each.id], each, "", ()), build.stored[each.id]) for each in clean]
        return [result_of(source, page) for source, page in found][:num_results]

    async def get_source_metadata(self, doc_id: str, page: int, *, scope: Scope | None = None) -> SourceDocument:
        """One page with all that is known of it; `UnknownPage`, a ValueError, where it is not there."""
        found = await self._pages.pages(scope or self._speaker, [(doc_id, page)])
        if not found:
            raise UnknownPage(f"no page {page} of document {doc_id!r} can be read")
        cleaner = self._cleaner(Trace())
        clean = cleaner.pages([cleaner.candidate(found[0])])
        if not clean:
            raise RedactionFailed(f"page {page} of document {doc_id!r} cannot be redacted, so it is not shown")
        return cleaner.source(found[0], clean[0], clean[0].text, cited(clean[0]))

    def format_source_citation(self, source: SourceDocument, citation_num: int) -> str:
        """The block of one source: its header line, then its content, fenced."""
        return block(citation_num, source.filename, source.page, source.markdown_content)

    def deduplicate_results(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One result per document and page, the best-scored one, best first."""
        return deduplicate(results)

    def truncate_to_budget(self, sources: list[SourceDocument], max_tokens: int) -> list[SourceDocument]:
        """The sources that fit in `max_tokens` as they are formatted, taken in order.

        The first that does not fit is shortened to what is left, or left out where that would say too little; those
        behind it are left out.
        """
        return trimmed(sources, max_tokens, counter=self._counter, shortest=self._recipe.shortest)

    def estimate_tokens(self, text: str) -> int:
        """About how many tokens a text has; budgets are counted exactly instead."""
        return estimate(text, self._counter.encoding)

    # --- inside ---

    def _cleaner(self, trace: Trace) -> Cleaner:
        return Cleaner(redactor=self._redactor, operator=self._operator(), mask=self._known.mask(), trace=trace)

    def _begin(self, request: ResearchRequest, scope: Scope | None, now: datetime | None, trace: Trace) -> _Build:
        cleaner = self._cleaner(trace)
        question = cleaner.question(request.query)
        return _Build(
            request=replace(request, query=cleaner.text(question)),
            scope=scope or self._speaker,
            now=now or self._clock.now(),
            cleaner=cleaner,
            question=question,
        )

    async def _found(self, build: _Build) -> Sequence[Candidate]:
        """The pages a search finds, read in one go."""
        request = build.request
        wanted = min(request.num_results, request.max_sources)
        found = await self._pages.find(
            build.scope,
            build.question,
            k=min(wanted + self._recipe.spare, MOST_RESULTS),
            text=request.include_text,
            visual=request.include_visual,
            where=request.where,
            trace=build.cleaner.trace,
        )
        stored = await self._pages.pages(build.scope, [(each.doc_id, each.page) for each in found])
        places = {(page.doc_id, page.page): page for page in stored}
        pairs = [(places[each.doc_id, each.page], each) for each in found if (each.doc_id, each.page) in places]
        candidates = [build.cleaner.candidate(page, each) for page, each in pairs]
        build.stored = {each.id: page for each, (page, _) in zip(candidates, pairs, strict=True)}
        return candidates

    def _sources(self, build: _Build, composed: Composed) -> list[SourceDocument]:
        return [
            build.cleaner.source(build.stored[candidate.id], candidate, form.text, cited(candidate, form.spans))
            for candidate, form in composed.shown
        ]

    def _capsule(self, build: _Build, composed: Composed, candidates: Sequence[Candidate], ledger: Ledger) -> Capsule:
        box = Box(
            kind=KIND,
            scope=build.scope,
            now=build.now,
            request=request_to_json(_fit_to_keep(build)),
            settings={"model": self._model, "recipe": asdict(self._recipe)},
        )
        return box.shut(candidates, ledger, composed.messages)

    def _result(
        self, build: _Build, composed: Composed, sources: list[SourceDocument], ledger: Ledger, capsule: Capsule
    ) -> ResearchContext:
        return ResearchContext(
            formatted_text=composed.text,
            sources=sources,
            total_tokens=composed.tokens,
            truncated=composed.truncated,
            build_id=f"ctx-{capsule.seal[:12]}",
            messages=composed.messages,
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            ledger=ledger,
            capsule=capsule,
            pictured=tuple(
                number
                for number, (candidate, _) in enumerate(composed.shown, start=1)
                if candidate.text and candidate.text == build.stored[candidate.id].text.strip()
            ),
            timings=build.seconds,
        )


def _fit_to_keep(build: _Build) -> ResearchRequest:
    """The request once its filter has searched, which takes the values as they are."""
    where = build.request.where
    return build.request if where is None else replace(build.request, where=filter_shown(where, build.cleaner.text))
