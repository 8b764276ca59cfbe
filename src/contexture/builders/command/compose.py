"""From redacted passages to documents and prompt: pure, so that a capsule rebuilds the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contexture.builders.command.documents import Document, Facts, document
from contexture.builders.command.render import block, messages
from contexture.builders.command.snippets import snippet
from contexture.errors import BudgetTooSmall, InvalidRequest
from contexture.ledger import Reason, Trace
from contexture.pipeline.rank import ranked
from contexture.pipeline.validate import validate
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Message

BY_LOADING = "dated by its loading: nobody says when it was published"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What documents and prompt are made for: the redacted text asked for, how many documents, within which limit."""

    text: str
    lang: str
    k: int
    max_tokens: int
    articles: tuple[Facts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """Documents, the prompt that shows them and what it costs; `unlimited` is what all of them would."""

    documents: tuple[Document, ...]
    messages: tuple[Message, ...]
    tokens: int
    unlimited: int


def compose(plan: Plan, candidates: Sequence[Candidate], *, counter: TokenCounter, trace: Trace) -> Composed:
    """The best `plan.k` documents, those of earlier searches first; every passage gets its verdict.

    A document that would take the prompt over its limit is left out.
    """
    found = _documents(plan, candidates)
    chosen = found[: plan.k]
    for beyond in found[plan.k :]:
        _drop(beyond, Reason.BEYOND_TOP_K, counter, trace)
    blocks = [block(each) for each in chosen]
    prompt = messages(plan.text, plan.lang, blocks)
    unlimited = tokens = counter.count_messages(prompt)
    while tokens > plan.max_tokens:
        if not chosen:
            raise BudgetTooSmall(tokens, plan.max_tokens)
        _drop(chosen.pop(), Reason.OVER_BUDGET, counter, trace)
        prompt = messages(plan.text, plan.lang, blocks[: len(chosen)])
        tokens = counter.count_messages(prompt)
    for each in chosen:
        _keep(each, counter, trace)
    shown, texts = [each.passages[0] for each in chosen], [each.text for each in blocks[: len(chosen)]]
    validate(tokens=tokens, limit=plan.max_tokens, shown=shown, texts=texts)
    return Composed(documents=tuple(chosen), messages=prompt, tokens=tokens, unlimited=unlimited)


def _documents(plan: Plan, candidates: Sequence[Candidate]) -> list[Document]:
    """Every article as a document, in the order of its search, then best first, ties by id."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in ranked(candidates):
        groups.setdefault(candidate.record_id, []).append(candidate)
    known = {facts.article_id: facts for facts in plan.articles}
    if unknown := sorted(set(groups) - set(known)):
        raise InvalidRequest(f"nothing is known of article {unknown[0]!r}")
    order = sorted(groups, key=lambda name: (known[name].rung, -groups[name][0].score, name))
    return [document(known[name], groups[name], _snippet(groups[name][0], plan.text)) for name in order]


def _snippet(best: Candidate, query: str) -> str:
    return snippet(best.text, best.sentences, query)


def _keep(shown: Document, counter: TokenCounter, trace: Trace) -> None:
    best, *others = shown.passages
    whole = shown.snippet == " ".join(best.text.split())
    trace.keep(
        best,
        tokens=counter.count(shown.snippet),
        form=Form.FULL if whole else Form.TRUNCATED,
        note=BY_LOADING if shown.dated_by_loading else "",
    )
    for other in others:
        trace.drop(other, Reason.BEYOND_TOP_K, of=best.id, note="another passage of the article is shown")


def _drop(left_out: Document, reason: Reason, counter: TokenCounter, trace: Trace) -> None:
    for passage in left_out.passages:
        trace.drop(passage, reason, tokens=counter.count(left_out.snippet))
