"""Composition of a research context.

Rank and deduplicate pages, shorten or drop the lowest-scored until they fit the token budget. Pure, so that a capsule
rebuilds the same bytes. Every page gets a verdict in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from contexture.builders.replay import ComposedPrompt
from contexture.builders.research import render
from contexture.builders.research.request import (
    ResearchRecipe,
    ResearchRequest,
    read_research_recipe,
    research_from_json,
)
from contexture.builders.research.result import SourceDocument
from contexture.capsule import Capsule
from contexture.errors import BrokenPromise, InvalidRequest
from contexture.ledger import Trace
from contexture.pipeline.candidates import drop_duplicate_keys, drop_near_duplicates, keep_top_k, rank_candidates
from contexture.pipeline.fence import PromptFence, make_fence, validate_prompt
from contexture.pipeline.packing import record_verdicts
from contexture.pipeline.truncation import find_start_cut
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Message, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedResearch:
    """A composed context; `unlimited` is the token count of all its pages in full."""

    messages: tuple[Message, ...]
    text: str
    tokens: int
    truncated: bool
    shown: tuple[tuple[Candidate, Variant], ...]
    unlimited: int


def compose_research(
    request: ResearchRequest,
    candidates: Sequence[Candidate],
    *,
    counter: TokenCounter,
    recipe: ResearchRecipe,
    trace: Trace,
) -> ComposedResearch:
    """The context for `request` from redacted candidates, within its token budget.

    Every candidate gets a verdict in the trace.
    """
    kept = _filter_candidates(request, candidates, recipe, trace)
    fence = make_fence(counter, version=recipe.fence_version)
    fitted = fit_pages(kept, request.query, counter=counter, limit=request.max_tokens, recipe=recipe, fence=fence)
    shown = {candidate.id: form for candidate, form in fitted.shown}
    record_verdicts(kept, {id_: (form,) for id_, form in fitted.full.items()}, shown, trace)
    messages = render.render_messages(recipe.system, request.query, fitted.text, recipe.material_role)
    _validate(request, fitted, messages, fence)
    return ComposedResearch(
        messages=messages,
        text=fitted.text,
        tokens=fitted.tokens,
        truncated=len(shown) < len(kept) or any(form.form is not Form.FULL for form in shown.values()),
        shown=fitted.shown,
        unlimited=sum(form.tokens for form in fitted.full.values()) + len(kept),
    )


def recompose_research(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The prompt of a research capsule, composed again; see `RecomposeFunction`."""
    request = research_from_json(capsule.request)
    composed = compose_research(
        replace(request, max_tokens=request.max_tokens + more_tokens),
        capsule.candidates,
        counter=counter,
        recipe=read_research_recipe(capsule),
        trace=trace,
    )
    return ComposedPrompt(composed.messages, composed.unlimited)


def _filter_candidates(
    request: ResearchRequest, candidates: Sequence[Candidate], recipe: ResearchRecipe, trace: Trace
) -> list[Candidate]:
    """Pages to show, best first: duplicates and everything beyond the requested number dropped with a reason."""
    pages = rank_candidates(drop_duplicate_keys(candidates, trace))
    said = drop_near_duplicates([page for page in pages if page.text], trace, threshold=recipe.near_duplicate)
    kept = {page.id for page in said}
    different = [page for page in pages if page.id in kept or not page.text]  # pages without text always differ
    return keep_top_k(different, min(request.num_results, request.max_sources), trace)


def _validate(request: ResearchRequest, fitted: FittedPages, messages: Sequence[Message], fence: PromptFence) -> None:
    validate_prompt(
        tokens=fitted.tokens,
        limit=request.max_tokens,
        shown=[candidate for candidate, _ in fitted.shown],
        texts=[fence.block(form.text) for _, form in fitted.shown],
        messages=messages,
        fence=fence,
    )
    if not all(candidate.citation and candidate.citation.page for candidate, _ in fitted.shown):
        raise BrokenPromise("a page would be shown without its number")


_MIN_SEPARATOR_TOKENS = 1  # most tokens that a blank line adds, if it does not merge with a neighbour
_MIN_ADDED_TOKENS = 8  # fewer remaining tokens are not worth lengthening a page


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedPages:
    """The shown pages, best first, as one text with its tokens; `full` are all pages in full."""

    shown: tuple[tuple[Candidate, Variant], ...]
    text: str
    tokens: int
    full: Mapping[str, Variant]


def render_pages(shown: Sequence[tuple[Candidate, Variant]], fence: PromptFence) -> str:
    """The shown pages as numbered blocks."""
    return render.join_blocks(
        [
            render.render_block(
                number, render.shown_filename(candidate), render.page_number(candidate), form.text, fence
            )
            for number, (candidate, form) in enumerate(shown, start=1)
        ]
    )


def fit_pages(
    pages: Sequence[Candidate],
    query: str,
    *,
    counter: TokenCounter,
    limit: int,
    recipe: ResearchRecipe,
    fence: PromptFence,
) -> FittedPages:
    """As many of `pages`, given best first, as fit in `limit` tokens, counted on the rendered text.

    The counts of the parts do not add up exactly to the count of the whole, so the room is reduced by the excess of
    the last attempt until the whole fits.
    """
    forms = {page.id: render.full_variant(page, number, counter, fence) for number, page in enumerate(pages, start=1)}
    fitted = _count_pages([(page, forms[page.id]) for page in pages], forms, counter, fence)
    room = limit
    while fitted.tokens > limit:
        shown = _PageFiller(pages, forms, query, counter, recipe, fence).fill(room)
        fitted = _count_pages(shown, forms, counter, fence)
        room -= max(1, fitted.tokens - limit)
    return fitted


def _count_pages(
    shown: Sequence[tuple[Candidate, Variant]], full: Mapping[str, Variant], counter: TokenCounter, fence: PromptFence
) -> FittedPages:
    text = render_pages(shown, fence)
    return FittedPages(shown=tuple(shown), text=text, tokens=counter.count(text), full=full)


@dataclass(slots=True)
class _PageFiller:
    """Distributes a number of tokens over pages."""

    pages: Sequence[Candidate]
    full: Mapping[str, Variant]
    query: str
    counter: TokenCounter
    recipe: ResearchRecipe
    fence: PromptFence
    chosen: dict[str, Variant] = field(default_factory=dict[str, Variant])
    left: int = 0

    def fill(self, room: int) -> list[tuple[Candidate, Variant]]:
        """Shorten every page in order, then give the remaining tokens to the best ones."""
        self.left = room + self._separator_tokens
        self._shorten_all()
        self._lengthen_best()
        return [(page, self.chosen[page.id]) for page in self.pages if page.id in self.chosen]

    @property
    def _separator_tokens(self) -> int:
        return self.counter.count(render.BLOCK_SEPARATOR) or _MIN_SEPARATOR_TOKENS

    def _shorten_all(self) -> None:
        """Choose a short form of each page in order; a page that does not fit is skipped, and later ones may fit."""
        share = max(self.recipe.least, min(self.recipe.short, self.left // max(1, len(self.pages))))
        for number, page in enumerate(self.pages, start=1):
            form = self._variant_within(number, page, min(share, self.left - self._separator_tokens))
            if form is not None:
                self.chosen[page.id] = form
                self.left -= form.tokens + self._separator_tokens

    def _lengthen_best(self) -> None:
        for number, page in enumerate(self.pages, start=1):
            before = self.chosen.get(page.id)
            if before is None or before.form is Form.FULL or self.left < _MIN_ADDED_TOKENS:
                continue
            after = self._variant_within(number, page, before.tokens + self.left)
            if after is not None and after.tokens > before.tokens:
                self.chosen[page.id] = after
                self.left -= after.tokens - before.tokens

    def _variant_within(self, number: int, page: Candidate, limit: int) -> Variant | None:
        """The full page if it fits in `limit`, else an extract, else None when too little would remain."""
        full = self.full[page.id]
        if full.tokens <= limit:
            return full
        if limit < self.recipe.shortest:
            return None
        return render.shorten_page(page, number, self.query, self.counter, limit, self.fence)


_ELLIPSIS_TOKENS = 2  # tokens of the ellipsis at the end


def trim_sources(
    sources: Sequence[SourceDocument], max_tokens: int, *, counter: TokenCounter, shortest: int
) -> list[SourceDocument]:
    """The first sources that fit in `max_tokens` together; the last one may be shortened."""
    if max_tokens < 0:
        raise InvalidRequest(f"max_tokens must not be below 0, not {max_tokens}")
    kept: list[SourceDocument] = []
    for source in sources:
        if _count_sources([*kept, source], counter) > max_tokens:
            return [*kept, *_shorten_source(kept, source, max_tokens, counter, shortest)]
        kept.append(source)
    return kept


def _count_sources(sources: Sequence[SourceDocument], counter: TokenCounter) -> int:
    fence = make_fence(counter)
    return counter.count(
        render.join_blocks(
            [
                render.render_block(number, source.filename, source.page, source.markdown_content, fence)
                for number, source in enumerate(sources, start=1)
            ]
        )
    )


def _shorten_source(
    kept: Sequence[SourceDocument], source: SourceDocument, limit: int, counter: TokenCounter, shortest: int
) -> list[SourceDocument]:
    """The beginning of a source, cut after a sentence if one fits; empty when fewer than `shortest` tokens remain."""
    room = limit - _count_sources([*kept, replace(source, markdown_content="")], counter) - _ELLIPSIS_TOKENS
    while room >= shortest:
        cut = replace(source, markdown_content=_cut_text(source.markdown_content, room, counter))
        over = _count_sources([*kept, cut], counter) - limit
        if over <= 0:
            return [cut]
        room -= over
    return []


def _cut_text(text: str, room: int, counter: TokenCounter) -> str:
    end = find_start_cut(text, counter, room)
    whole = max((stop for _, stop in render.split_sentences(text) if stop <= end), default=0)
    return f"{text[: whole or end].rstrip()} {render.ELLIPSIS_MARK}"
