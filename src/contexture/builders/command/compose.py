"""Composition of a command: redacted passages become documents and a prompt within the token limit.

Pure, so that a capsule rebuilds the same bytes. Every passage gets a verdict in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from contexture.builders.command import _render as render
from contexture.builders.replay import ComposedPrompt
from contexture.capsule import Capsule, convert_part
from contexture.errors import BudgetTooSmall, InvalidRequest
from contexture.ledger import Reason, Trace
from contexture.pipeline.candidates import rank_candidates
from contexture.pipeline.fence import MaterialRole, make_fence, validate_prompt
from contexture.ports import TokenCounter
from contexture.text.skeleton import describe_invisible
from contexture.types import Candidate, Form, Message

LOAD_DATE_NOTE = "dated by its loading: nobody says when it was published"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandPromptPlan:
    """What a command prompt is composed from besides candidates; redacted, stored in the capsule.

    Role and fence are those of the first layout for a capsule that does not name its own.
    """

    text: str
    lang: str
    k: int
    max_tokens: int
    articles: tuple[render.ArticleFacts, ...]
    material_role: MaterialRole = MaterialRole.SYSTEM
    fence_version: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedCommand:
    """Documents, the prompt that shows them and its tokens; `unlimited` is the token count without a limit."""

    documents: tuple[render.CommandDocument, ...]
    messages: tuple[Message, ...]
    tokens: int
    unlimited: int


def compose_command(
    plan: CommandPromptPlan, candidates: Sequence[Candidate], *, counter: TokenCounter, trace: Trace
) -> ComposedCommand:
    """The best `plan.k` documents within the token limit, earlier searches first.

    Every passage gets a verdict in the trace.
    """
    found = _make_documents(plan, candidates)
    chosen = found[: plan.k]
    for beyond in found[plan.k :]:
        _record_dropped(beyond, Reason.BEYOND_TOP_K, counter, trace)
    fence = make_fence(counter, version=plan.fence_version)
    blocks = [render.make_block(each, fence) for each in chosen]
    prompt = render.render_messages(plan.text, plan.lang, blocks, plan.material_role)
    unlimited = tokens = counter.count_messages(prompt)
    while tokens > plan.max_tokens:
        if not chosen:
            raise BudgetTooSmall(tokens, plan.max_tokens)
        _record_dropped(chosen.pop(), Reason.OVER_BUDGET, counter, trace)
        prompt = render.render_messages(plan.text, plan.lang, blocks[: len(chosen)], plan.material_role)
        tokens = counter.count_messages(prompt)
    for each in chosen:
        _record_kept(each, counter, trace)
    shown, texts = [each.passages[0] for each in chosen], [each.text for each in blocks[: len(chosen)]]
    validate_prompt(tokens=tokens, limit=plan.max_tokens, shown=shown, texts=texts, messages=prompt, fence=fence)
    return ComposedCommand(documents=tuple(chosen), messages=prompt, tokens=tokens, unlimited=unlimited)


def _make_documents(plan: CommandPromptPlan, candidates: Sequence[Candidate]) -> list[render.CommandDocument]:
    """Every article as a document, ordered by the search that found it, then best first, ties by id."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in rank_candidates(candidates):
        groups.setdefault(candidate.record_id, []).append(candidate)
    known = {facts.article_id: facts for facts in plan.articles}
    if unknown := sorted(set(groups) - set(known)):
        raise InvalidRequest(f"nothing is known of article {unknown[0]!r}")
    order = sorted(groups, key=lambda name: (known[name].rung, -groups[name][0].score, name))
    return [
        render.make_document(known[name], groups[name], _best_snippet(groups[name][0], plan.text)) for name in order
    ]


def _best_snippet(best: Candidate, query: str) -> str:
    return render.make_snippet(best.text, best.sentences, query)


def _record_kept(shown: render.CommandDocument, counter: TokenCounter, trace: Trace) -> None:
    best, *others = shown.passages
    whole = shown.snippet == " ".join(best.text.split())
    trace.keep(
        best,
        tokens=counter.count(shown.snippet),
        form=Form.FULL if whole else Form.TRUNCATED,
        note="; ".join(filter(None, (LOAD_DATE_NOTE * shown.dated_by_loading, describe_invisible(shown.snippet)))),
    )
    for other in others:
        trace.drop(other, Reason.BEYOND_TOP_K, of=best.id, note="another passage of the article is shown")


def _record_dropped(left_out: render.CommandDocument, reason: Reason, counter: TokenCounter, trace: Trace) -> None:
    for passage in left_out.passages:
        trace.drop(passage, reason, tokens=counter.count(left_out.snippet))


CAPSULE_KIND = "command"


def recompose_command(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The prompt of a command capsule, composed again; see `RecomposeFunction`."""
    plan = convert_part(capsule.request.get("plan"), CommandPromptPlan, "a command")
    plan = replace(plan, max_tokens=plan.max_tokens + more_tokens)
    composed = compose_command(plan, capsule.candidates, counter=counter, trace=trace)
    return ComposedPrompt(composed.messages, composed.unlimited)
