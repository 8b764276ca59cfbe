"""The research builder: find pages, redact, fit the budget, number the sources, seal a capsule.

A found page becomes a candidate with sentences, signals, citation and masked secrets.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from contexture.builders._tokens import estimate_tokens
from contexture.builders.clean import Cleaner, CleanerFactory
from contexture.builders.research.compose import ComposedResearch, compose_research, trim_sources
from contexture.builders.research.render import (
    Offsets,
    cite_spans,
    page_number,
    render_block,
    shown_filename,
    split_sentences,
)
from contexture.builders.research.request import (
    CAPSULE_KIND,
    MAX_SOURCES,
    MAX_TOKENS,
    RESULTS_LIMIT,
    ResearchRecipe,
    ResearchRequest,
    SearchMode,
    check_request,
    parse_search_mode,
    research_to_json,
)
from contexture.builders.research.result import ResearchContext, SourceDocument, deduplicate_results, make_search_result
from contexture.builders.telemetry import Stopwatch
from contexture.capsule import Capsule, make_capsule
from contexture.errors import RedactionFailed, UnknownPage
from contexture.ledger import Ledger, Trace
from contexture.pages.values import FoundPage, PageFinder, StoredPage
from contexture.pipeline.candidates import CandidateSource, collect_candidates
from contexture.pipeline.fence import make_fence, safe_label
from contexture.pipeline.masking import EMPTY_MASK, SecretMask, SecretMaskCache, mask_candidate
from contexture.pipeline.redaction import Placeholders, RedactionOperator, RememberedScans
from contexture.ports import Clock, Redactor, Secrets, TokenCounter
from contexture.retrieval.prepare import clip_spans
from contexture.types import Candidate, Citation, Filter, Scope

PAGES_COLLECTION = "pages"
PAGES_SECTION = "pages"
TEXT_SIGNAL = "text"
VISUAL_SIGNAL = "visual"


def page_key(doc_id: str, page: int) -> str:
    """The id under which a page is stored and cited."""
    return f"{doc_id}:{page}"


def page_to_candidate(
    page: StoredPage, found: FoundPage | None = None, mask: SecretMask = EMPTY_MASK, *, rules: str = ""
) -> Candidate:
    """A stored page as a candidate with known secrets masked; not yet redacted.

    Stored spans are used only if their rules match. Without `found` it has no sentences and cannot be shortened.
    """
    key = page_key(page.doc_id, page.page)
    start, end = _visible_range(page.text)
    text = page.text[start:end]
    sentences = _page_sentences(page, start, text) if found else ()
    name = mask.mask(page.filename)
    known = page.redactions if page.rules == rules else None
    raw = Candidate(
        id=key,
        key=key,
        text=text,
        section=PAGES_SECTION,
        title=name,
        label=mask.mask(safe_label(name)),
        kind="page",
        lang=page.lang,
        time=page.timestamp,
        score=found.score if found else 0.0,
        signals=_score_signals(found),
        sentences=sentences,
        origins=tuple((start + first, start + last) for first, last in sentences),
        weights=_lift_table_headers(_sentence_weights(sentences, start, found), sentences, text),
        redactions=None if known is None else clip_spans(known, start, end),
        tokens=page.tokens if len(text) == len(page.text) else {},
        simhash=page.simhash,
        citation=Citation(
            collection=PAGES_COLLECTION, record_id=key, title=name, start=start, end=end, hash=page.hash, page=page.page
        ),
    )
    return mask_candidate(raw, mask)


def _visible_range(text: str) -> tuple[int, int]:
    """Start and end of a text without surrounding white space."""
    return len(text) - len(text.lstrip()) if text.strip() else 0, len(text.rstrip())


def _page_sentences(page: StoredPage, start: int, text: str) -> Offsets:
    """Sentence offsets in a page's visible text: the stored ones, or computed when none are stored."""
    if not page.sentences:
        return split_sentences(text)
    return tuple((first - start, last - start) for first, last in page.sentences)


def _score_signals(found: FoundPage | None) -> dict[str, float]:
    signals = {TEXT_SIGNAL: found.text_score, VISUAL_SIGNAL: found.visual_score} if found else {}
    return {name: score for name, score in signals.items() if score is not None}


def _lift_table_headers(weights: Sequence[float], sentences: Sequence[tuple[int, int]], text: str) -> tuple[float, ...]:
    """The weights, with the header of each table as heavy as its heaviest row, so that no row is shown without it."""
    lifted = list(weights)
    head = -1
    for at, (start, _) in enumerate(sentences):
        if not text.startswith("|", start):
            head = -1
            continue
        if head < 0:
            head = at
        for line in (head, head + 1):  # the header, and the rule below it
            if line <= at and (line == head or text.startswith("| ---", sentences[line][0])):
                lifted[line] = max(lifted[line], lifted[at])
    return tuple(lifted)


def _sentence_weights(sentences: Sequence[tuple[int, int]], start: int, found: FoundPage | None) -> tuple[float, ...]:
    """For each sentence the best score of the found passages that overlap it; 0 without one."""
    known = [
        (each.citation.start - start, each.citation.end - start, each.score)
        for each in (found.candidates if found else ())
        if each.citation is not None
    ]
    return tuple(
        max((score for begin, end, score in known if first < end and begin < last), default=0.0)
        for first, last in sentences
    )


PAGES_SOURCE = "pages"


@dataclass(kw_only=True, slots=True)
class _ResearchBuild:
    """State of one running build."""

    request: ResearchRequest
    scope: Scope
    now: datetime
    cleaner: Cleaner
    question: str
    stored: dict[str, StoredPage] = field(default_factory=dict[str, StoredPage])
    watch: Stopwatch = field(default_factory=Stopwatch)


class ResearchContextBuilder:
    """Builds a numbered, cited context for a research question over the pages of documents.

    A context shows at most `max_sources` pages in at most `max_tokens` tokens, counted on its text with the headers.
    `speaker` is the scope of calls that pass none.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        pages: PageFinder,
        max_sources: int = MAX_SOURCES,
        max_tokens: int = MAX_TOKENS,
        *,
        counter: TokenCounter,
        redactor: Redactor,
        clock: Clock,
        model: str = "",
        secrets: Secrets | None = None,
        recipe: ResearchRecipe | None = None,
        operator: Callable[[], RedactionOperator] = Placeholders,
        deadline: float = 10.0,
        speaker: Scope | None = None,
    ) -> None:
        self.max_sources = max_sources
        self.max_tokens = max_tokens
        self._pages = pages
        self._counter = counter
        self._cleaners = CleanerFactory(
            redactor=RememberedScans(redactor), secrets=SecretMaskCache(secrets), operator=operator
        )
        self._clock = clock
        self._model = model or counter.encoding
        self._recipe = recipe or ResearchRecipe()
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
        """The context for a question, as `scope` may read it; `now` replaces the clock, which is otherwise read once.

        `max_tokens` and `where` apply to this question only. Raises a `RequestError` that the caller can fix, and
        `RedactionFailed` when the question cannot be redacted; a search that fails is a degradation.
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
        build = self._start_build(check_request(request), scope, now, trace)
        with build.watch.phase("collect"):
            source = CandidateSource(ask=lambda: self._find_candidates(build), timeout_seconds=self._deadline)
            raw = await collect_candidates({PAGES_SOURCE: source}, deadline=self._deadline, trace=trace)
        with build.watch.phase("redact"):
            clean = build.cleaner.clean_candidates(raw)
        with build.watch.phase("compose"):
            composed = compose_research(build.request, clean, counter=self._counter, recipe=self._recipe, trace=trace)
            sources = self._make_sources(build, composed)
        ledger = trace.finish(raw)
        return self._make_result(build, composed, sources, ledger, self._make_capsule(build, composed, clean, ledger))

    async def search(
        self, query: str, num_results: int = 10, search_mode: str = SearchMode.HYBRID, *, scope: Scope | None = None
    ) -> list[dict[str, Any]]:
        """Search results as plain JSON objects, best first: document, page, score, file name and metadata."""
        text, visual = parse_search_mode(search_mode)
        request = ResearchRequest(
            query=query, num_results=num_results, include_text=text, include_visual=visual, max_sources=RESULTS_LIMIT
        )
        build = self._start_build(check_request(request), scope, None, Trace())
        clean = build.cleaner.clean_candidates(await self._find_candidates(build))
        found = [
            (_make_source(build.cleaner, build.stored[each.id], each, "", ()), build.stored[each.id]) for each in clean
        ]
        return [make_search_result(source, page) for source, page in found][:num_results]

    async def get_source_metadata(self, doc_id: str, page: int, *, scope: Scope | None = None) -> SourceDocument:
        """One page with its metadata, redacted.

        Raises `UnknownPage`, a `ValueError`, when it does not exist or may not be read, and `RedactionFailed` when it
        cannot be redacted.
        """
        found = await self._pages.pages(scope or self._speaker, [(doc_id, page)])
        if not found:
            raise UnknownPage(f"no page {page} of document {doc_id!r} can be read")
        cleaner = self._cleaners.make(Trace())
        clean = cleaner.clean_candidates(
            [page_to_candidate(found[0], None, cleaner.mask, rules=cleaner.redactor.rules)]
        )
        if not clean:
            raise RedactionFailed(f"page {page} of document {doc_id!r} cannot be redacted, so it is not shown")
        return _make_source(cleaner, found[0], clean[0], clean[0].text, cite_spans(clean[0]))

    def format_source_citation(self, source: SourceDocument, citation_num: int) -> str:
        """The block of one source: its header line, then its content, fenced."""
        fence = make_fence(self._counter)
        return render_block(citation_num, source.filename, source.page, source.markdown_content, fence)

    def deduplicate_results(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One result per document and page, the best-scored one, best first."""
        return deduplicate_results(results)

    def truncate_to_budget(self, sources: list[SourceDocument], max_tokens: int) -> list[SourceDocument]:
        """The sources that fit in `max_tokens` as they are formatted, taken in order.

        The first that does not fit is shortened to the remaining tokens, or dropped when too few remain; all later
        ones are dropped.
        """
        return trim_sources(sources, max_tokens, counter=self._counter, shortest=self._recipe.shortest)

    def estimate_tokens(self, text: str) -> int:
        """Estimated tokens of a text; budgets do not use this estimate but the token counter."""
        return estimate_tokens(text, self._counter.encoding)

    # --- private methods ---

    def _start_build(
        self, request: ResearchRequest, scope: Scope | None, now: datetime | None, trace: Trace
    ) -> _ResearchBuild:
        cleaner = self._cleaners.make(trace)
        question = cleaner.mask_text(request.query)
        return _ResearchBuild(
            request=replace(request, query=cleaner.clean_prompt_text(question, make_fence(self._counter))),
            scope=scope or self._speaker,
            now=now or self._clock.now(),
            cleaner=cleaner,
            question=question,
        )

    async def _find_candidates(self, build: _ResearchBuild) -> Sequence[Candidate]:
        """Search pages, read them in one call, and make candidates of them."""
        request = build.request
        wanted = min(request.num_results, request.max_sources)
        found = await self._pages.find(
            build.scope,
            build.question,
            k=min(wanted + self._recipe.spare, RESULTS_LIMIT),
            text=request.include_text,
            visual=request.include_visual,
            where=request.where,
            trace=build.cleaner.trace,
        )
        stored = await self._pages.pages(build.scope, [(each.doc_id, each.page) for each in found])
        places = {(page.doc_id, page.page): page for page in stored}
        pairs = [(places[each.doc_id, each.page], each) for each in found if (each.doc_id, each.page) in places]
        mask, rules = build.cleaner.mask, build.cleaner.redactor.rules
        candidates = [page_to_candidate(page, each, mask, rules=rules) for page, each in pairs]
        build.stored = {each.id: page for each, (page, _) in zip(candidates, pairs, strict=True)}
        return candidates

    def _make_sources(self, build: _ResearchBuild, composed: ComposedResearch) -> list[SourceDocument]:
        return [
            _make_source(
                build.cleaner, build.stored[candidate.id], candidate, form.text, cite_spans(candidate, form.spans)
            )
            for candidate, form in composed.shown
        ]

    def _make_capsule(
        self, build: _ResearchBuild, composed: ComposedResearch, candidates: Sequence[Candidate], ledger: Ledger
    ) -> Capsule:
        return make_capsule(
            CAPSULE_KIND,
            scope=build.scope,
            now=build.now,
            request=research_to_json(replace(build.request, where=build.cleaner.clean_filter(build.request.where))),
            settings={"model": self._model, "encoding": self._counter.encoding, "recipe": asdict(self._recipe)},
            candidates=candidates,
            ledger=ledger,
            messages=composed.messages,
        )

    def _make_result(
        self,
        build: _ResearchBuild,
        composed: ComposedResearch,
        sources: list[SourceDocument],
        ledger: Ledger,
        capsule: Capsule,
    ) -> ResearchContext:
        return ResearchContext(
            formatted_text=composed.text,
            sources=sources,
            total_tokens=composed.tokens,
            truncated=composed.truncated,
            build_id=capsule.build_id,
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
            timings=build.watch.seconds,
        )


def _make_source(
    cleaner: Cleaner, page: StoredPage, clean: Candidate, content: str, citations: tuple[Citation, ...]
) -> SourceDocument:
    """The source that shows `content` of a page; headings that cannot be redacted are left out."""
    return SourceDocument(
        doc_id=page.doc_id,
        filename=shown_filename(clean),
        page=page_number(clean),
        extension=page.extension,
        thumbnail_path=page.thumb_path,
        image_path=page.image_path,
        timestamp=page.timestamp.isoformat(),
        section_path=cleaner.clean_or(page.section_path, None),
        parent_heading=cleaner.clean_or(page.parent_heading, None),
        markdown_content=content,
        relevance_score=clean.score,
        citations=citations,
    )
