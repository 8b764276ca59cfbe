"""From redacted pages to a finished context: pure, so that a capsule rebuilds the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contexture.builders.research.budget import Fitted, fit_pages
from contexture.builders.research.render import messages
from contexture.builders.research.request import ResearchRecipe, ResearchRequest
from contexture.errors import BrokenPromise
from contexture.ledger import Reason, Trace
from contexture.pipeline.dedupe import by_key, near_duplicates
from contexture.pipeline.fence import fence
from contexture.pipeline.rank import ranked, top_k
from contexture.pipeline.validate import validate
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Message, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A context with what is shown in it; `unlimited` is what all its pages would cost whole."""

    messages: tuple[Message, ...]
    text: str
    tokens: int
    truncated: bool
    shown: tuple[tuple[Candidate, Variant], ...]
    unlimited: int


def compose(
    request: ResearchRequest,
    candidates: Sequence[Candidate],
    *,
    counter: TokenCounter,
    recipe: ResearchRecipe,
    trace: Trace,
) -> Composed:
    """The context for `request` out of `candidates`, within its budget; every candidate gets its verdict."""
    kept = _eligible(request, candidates, recipe, trace)
    fitted = fit_pages(kept, request.query, counter=counter, limit=request.max_tokens, recipe=recipe)
    truncated = _judge(kept, fitted, trace)
    _validate(request, fitted)
    return Composed(
        messages=messages(recipe.system, request.query, fitted.text),
        text=fitted.text,
        tokens=fitted.tokens,
        truncated=truncated,
        shown=fitted.shown,
        unlimited=sum(fitted.full.values()) + len(kept),
    )


def _eligible(
    request: ResearchRequest, candidates: Sequence[Candidate], recipe: ResearchRecipe, trace: Trace
) -> list[Candidate]:
    """Pages worth showing, best first: each once, no near copies, no more than were asked for."""
    pages = ranked(by_key(candidates, trace))
    said = near_duplicates([page for page in pages if page.text], trace, threshold=recipe.near_duplicate)
    kept = {page.id for page in said}
    different = [page for page in pages if page.id in kept or not page.text]  # pages seen and not read differ
    return top_k(different, min(request.num_results, request.max_sources), trace)


def _judge(kept: Sequence[Candidate], fitted: Fitted, trace: Trace) -> bool:
    """Write every verdict down; says whether the budget cut anything."""
    forms = {candidate.id: form for candidate, form in fitted.shown}
    for candidate in kept:
        form = forms.get(candidate.id)
        if form is None:
            trace.drop(candidate, Reason.OVER_BUDGET, tokens=fitted.full[candidate.id])
        else:
            trace.keep(candidate, tokens=form.tokens, form=form.form)
    return len(forms) < len(kept) or any(form.form is not Form.FULL for form in forms.values())


def _validate(request: ResearchRequest, fitted: Fitted) -> None:
    validate(
        tokens=fitted.tokens,
        limit=request.max_tokens,
        shown=[candidate for candidate, _ in fitted.shown],
        texts=[fence(form.text) for _, form in fitted.shown],
    )
    if not all(candidate.citation and candidate.citation.page for candidate, _ in fitted.shown):
        raise BrokenPromise("a page would be shown without its number")
