"""Composition of a turn prompt: choose memories and the newest history within the token limit, and render them.

Pure, so that a capsule rebuilds the same bytes. Every memory and message gets a verdict in the ledger.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from msgspec import structs

from contexture.builders.replay import ComposedPrompt
from contexture.builders.turn import request
from contexture.builders.turn._history import drop_already_in_history, find_history_cut, find_newest_exchange
from contexture.builders.turn.request import Content
from contexture.capsule import Capsule
from contexture.conversation import JOINED
from contexture.errors import BudgetTooSmall
from contexture.ledger import Reason, Trace
from contexture.memory.candidates import drop_superseded, rank_below_statements
from contexture.pipeline.candidates import (
    drop_duplicate_keys,
    drop_near_duplicates,
    keep_above_floor,
    keep_top_k,
    rank_candidates,
)
from contexture.pipeline.fence import DATA_NOTICE, MaterialRole, PromptFence, make_fence, safe_label, validate_prompt
from contexture.pipeline.knapsack import PACKERS
from contexture.pipeline.packing import PackingItem, VariantsById, fit_prompt, make_pack_items, record_verdicts
from contexture.pipeline.scoring import RELEVANCE
from contexture.pipeline.truncation import extract_sentences
from contexture.ports import TokenCounter
from contexture.text.segmentation import split_sentences
from contexture.types import Candidate, Form, Message, Variant

MEMORY_HEADING = "Relevant memory:"
SOURCES_HEADING = "Relevant memory and sources:"
SOURCE_MATERIAL = "source"
"""Signal of a candidate that is no memory: a passage of a record, a document, an article or the workspace."""

MEMORY_NAME = "memory"

ShownMemory = tuple[Candidate, Variant]


def render_system(prompt: str) -> str:
    """The system message as sent: the caller's prompt plus the data notice, the same in every turn."""
    return f"{prompt}\n\n{DATA_NOTICE}" if prompt else DATA_NOTICE


def render_messages(
    system: str,
    history: Sequence[Message],
    shown: Sequence[ShownMemory],
    user: Content,
    role: MaterialRole = MaterialRole.SYSTEM,
    continuation: Sequence[Message] = (),
) -> tuple[Message, ...]:
    """Messages from most to least stable: system, history, memories if any, user, and what follows it.

    With material of other sources among the memories, it is all in a message of the user role: others wrote it.
    """
    if any(map(is_material, shown)):
        role = MaterialRole.USER
    memory = [{"role": role.value, "name": MEMORY_NAME, "content": render_memories(shown)}] if shown else []
    return ({"role": "system", "content": system}, *history, *memory, {"role": "user", "content": user}, *continuation)


def render_memories(shown: Sequence[ShownMemory]) -> str:
    """The numbered memories under their heading."""
    numbered = enumerate(shown, start=1)
    heading = SOURCES_HEADING if any(map(is_material, shown)) else MEMORY_HEADING
    return "\n".join((heading, *(render_block(number, candidate, form.text) for number, (candidate, form) in numbered)))


def is_material(shown: ShownMemory) -> bool:
    """Whether a shown block is no memory."""
    return SOURCE_MATERIAL in shown[0].signals


def render_block(number: int, candidate: Candidate, text: str) -> str:
    """One numbered, labelled memory."""
    return f"[{number}] ({safe_label(candidate.label) or 'memory'})\n{text}"


_EXTRACT_SHARES = (0.6, 0.35, 0.2)
_EXTRACT_VALUE_EXPONENT = 0.3  # half the tokens, spent on the best sentences, keep four fifths of the value
_MIN_EXTRACT_TOKENS = 16  # a shorter extract is not useful
_MAX_SCORE = 1e6  # above any salience score, but a foreign capsule may contain more
_WIDEST_NUMBER = 99  # no prompt has more numbered blocks


def make_variants(
    candidates: Sequence[Candidate],
    *,
    query: str,
    counter: TokenCounter,
    fence: PromptFence,
    sharpness: float,
    room: int,
) -> VariantsById:
    """Variants per candidate id.

    Full text, plus extracts of the best sentences when not everything fits in `room`.
    """
    whole = {candidate.id: _full_variant(candidate, counter, fence, sharpness) for candidate in candidates}
    if sum(form.tokens for form in whole.values()) <= room:
        return {name: [form] for name, form in whole.items()}
    return {
        candidate.id: [whole[candidate.id], *_extract_variants(candidate, whole[candidate.id], query, counter, fence)]
        for candidate in candidates
    }


def _full_variant(candidate: Candidate, counter: TokenCounter, fence: PromptFence, sharpness: float) -> Variant:
    text = fence.block(candidate.text)
    value = min(max(candidate.score, 0.0), _MAX_SCORE) ** sharpness
    stored = candidate.tokens.get(counter.encoding) if text == candidate.text else None
    tokens = (
        counter.count(_render_numbered(candidate, text))
        if stored is None
        else stored + counter.count(_render_numbered(candidate, ""))
    )
    return Variant(form=Form.FULL, text=text, tokens=tokens, value=value)


def _extract_variants(
    candidate: Candidate, whole: Variant, query: str, counter: TokenCounter, fence: PromptFence
) -> list[Variant]:
    offsets = candidate.sentences or split_sentences(candidate.text)
    weights = candidate.weights if candidate.sentences else ()
    found: dict[str, Variant] = {}
    for share in _EXTRACT_SHARES:
        limit = math.floor(whole.tokens * share)
        if limit < _MIN_EXTRACT_TOKENS or len(offsets) < 2:  # noqa: PLR2004 - one sentence is the whole
            break
        cut = extract_sentences(candidate.text, offsets, query, counter, limit, weights=weights)
        text = fence.block(cut.text)
        tokens = counter.count(_render_numbered(candidate, text))
        if cut.text and tokens < whole.tokens and text not in found:
            # The best sentences have more than their proportional share of the value of the memory.
            value = whole.value * (tokens / whole.tokens) ** _EXTRACT_VALUE_EXPONENT
            found[text] = Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=cut.spans)
    return list(found.values())


def _render_numbered(candidate: Candidate, text: str) -> str:
    return f"{render_block(_WIDEST_NUMBER, candidate, text)}\n"


# The least relevance, and the least share of the best one, as for a question over everything.
_MATERIAL_FLOOR, _MATERIAL_SHARE = 0.3, 0.4
_MAX_MATERIAL = 24

TimePhase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedTurn:
    """A composed prompt and its parts.

    History is kept from line `start`; `unlimited` is the token count without a limit.
    """

    messages: tuple[Message, ...]
    tokens: int
    unlimited: int
    token_counts: Mapping[str, int]
    shown: tuple[ShownMemory, ...]
    start: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _BudgetChoice:
    """What fits the limit: the memories shown, the line from which history is kept, and the token count."""

    tokens: int
    shown: tuple[ShownMemory, ...]
    start: int
    items: tuple[PackingItem, ...]
    forms: VariantsById


def _no_timing(_: str) -> AbstractContextManager[None]:
    return nullcontext()


def compose_turn(
    asked: request.RedactedTurn,
    candidates: Sequence[Candidate],
    *,
    counter: TokenCounter,
    recipe: request.TurnRecipe,
    trace: Trace,
    timed: TimePhase = _no_timing,
) -> ComposedTurn:
    """The prompt for a turn within its token limit; every memory and history line gets a verdict in the trace."""
    fence = make_fence(counter, version=recipe.fence_version)
    with timed("ranking"):
        ranking = _filter_candidates(candidates, asked, recipe, fence, trace)
    with timed("tokenisation"):
        fixed = _count_fixed_parts(asked, counter)
        empty = counter.count_messages([])
        costs = [counter.count_messages([line.message]) - empty for line in asked.lines]
        kept = drop_already_in_history(
            ranking, _history_without_memories(asked, costs, fixed, recipe), trace, share=recipe.near_duplicate
        )
        chosen = _fit_budget(asked, kept, costs, fixed, counter, recipe, fence)
    with timed("prompt"):
        history = [line.message for line in asked.lines[chosen.start :]]
        prompt = render_messages(
            asked.system, history, chosen.shown, asked.user, recipe.material_role, asked.continuation
        )
    record_verdicts(kept, chosen.forms, {candidate.id: form for candidate, form in chosen.shown}, trace)
    _record_history(asked.lines, costs, chosen.start, trace)
    validate_prompt(
        tokens=chosen.tokens,
        limit=asked.limit,
        shown=[candidate for candidate, _ in chosen.shown],
        texts=[form.text for _, form in chosen.shown],
        messages=prompt,
        fence=fence,
    )
    return ComposedTurn(
        messages=prompt,
        tokens=chosen.tokens,
        unlimited=fixed + sum(costs) + sum(item.options[0].tokens for item in chosen.items),
        token_counts=_count_by_part(asked, costs[chosen.start :], fixed, chosen.tokens, counter),
        shown=chosen.shown,
        start=chosen.start,
    )


def recompose_turn(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The prompt of a turn capsule, composed again; see `RecomposeFunction`."""
    asked = request.redacted_turn_from_json(capsule.request)
    composed = compose_turn(
        replace(asked, limit=asked.limit + more_tokens),
        capsule.candidates,
        counter=counter,
        recipe=request.read_turn_recipe(capsule),
        trace=trace,
    )
    return ComposedPrompt(composed.messages, composed.unlimited)


def _count_fixed_parts(asked: request.RedactedTurn, counter: TokenCounter) -> int:
    """Tokens of system and user message; raises `BudgetTooSmall` with both counts when they exceed the limit."""
    tokens = counter.count_messages(render_messages(asked.system, (), (), asked.user, continuation=asked.continuation))
    if tokens > asked.limit:
        parts = _count_by_part(asked, (), tokens, tokens, counter)
        raise BudgetTooSmall(tokens, asked.limit, {name: parts[name] for name in ("system", "user")})
    return tokens


def _history_without_memories(
    asked: request.RedactedTurn, costs: Sequence[int], fixed: int, recipe: request.TurnRecipe
) -> Sequence[request.HistoryLine]:
    """The history lines that would be shown if there were no memories."""
    return asked.lines[
        find_history_cut(asked.lines, costs, asked.limit - fixed, int(recipe.history_step * asked.limit)) :
    ]


def _filter_candidates(
    candidates: Sequence[Candidate],
    asked: request.RedactedTurn,
    recipe: request.TurnRecipe,
    fence: PromptFence,
    trace: Trace,
) -> list[Candidate]:
    """Memories to pack, best first.

    Duplicates, empty ones and everything beyond the limit of the health state are dropped with a reason.
    """
    single = drop_duplicate_keys(candidates, trace)
    visible = [candidate for candidate in single if fence.inline(candidate.text).strip()]
    for candidate in single:
        if candidate not in visible:
            trace.drop(candidate, Reason.EMPTY)
    material = _select_material([each for each in visible if SOURCE_MATERIAL in each.signals], trace)
    spoken = rank_candidates([each for each in visible if SOURCE_MATERIAL not in each.signals])
    question = request.plain_text(asked.user)
    if recipe.corrections:
        spoken = rank_below_statements(drop_superseded(spoken, question, trace), question)
    different = drop_near_duplicates([*spoken, *material], trace, threshold=recipe.near_duplicate)
    joined = [each for each in different if JOINED in each.signals]
    others = [each for each in different if SOURCE_MATERIAL in each.signals]
    recalled = [each for each in different if JOINED not in each.signals and SOURCE_MATERIAL not in each.signals]
    return rank_candidates([*keep_top_k(recalled, recipe.max_memories(asked.state), trace), *joined, *others])


def _select_material(found: Sequence[Candidate], trace: Trace) -> list[Candidate]:
    """The material of other sources that answers well enough by itself; its score also counts how recent it is."""
    rated = [structs.replace(each, score=each.signals.get(RELEVANCE, 0.0)) for each in found]
    best = max((each.score for each in rated), default=0.0)
    near = {each.id for each in keep_above_floor(rated, max(_MATERIAL_FLOOR, _MATERIAL_SHARE * best), trace)}
    return keep_top_k([each for each in found if each.id in near], _MAX_MATERIAL, trace)


def _fit_budget(
    asked: request.RedactedTurn,
    kept: Sequence[Candidate],
    costs: Sequence[int],
    fixed: int,
    counter: TokenCounter,
    recipe: request.TurnRecipe,
    fence: PromptFence,
) -> _BudgetChoice:
    """Fit memories first, then history.

    Room for the newest exchange is reserved if it takes at most half of it, and what history needs of the share that
    memories may not use.
    """
    room = asked.limit - fixed
    newest = sum(costs[find_newest_exchange(asked.lines) :])
    shared = min(sum(costs), int((1 - recipe.memory_share) * room))
    reserve = max(newest if 2 * newest <= room else 0, shared)
    forms = make_variants(
        kept,
        query=request.plain_text(asked.user),
        counter=counter,
        fence=fence,
        sharpness=recipe.sharpness,
        room=room - reserve,
    )
    items = make_pack_items(kept, forms)

    def choose_variants(chosen: Mapping[str, int]) -> tuple[ShownMemory, ...]:
        return tuple((each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen)

    def count(chosen: Mapping[str, int]) -> int:
        return counter.count_messages(
            render_messages(
                asked.system, (), choose_variants(chosen), asked.user, recipe.material_role, asked.continuation
            )
        )

    fitted = fit_prompt(items, asked.limit - reserve, PACKERS[recipe.packer], count)
    memories = choose_variants(fitted.packing.chosen)
    start = find_history_cut(asked.lines, costs, asked.limit - fitted.tokens, int(recipe.history_step * asked.limit))
    start, tokens = _trim_until_fits(asked, memories, start, counter, recipe.material_role)
    return _BudgetChoice(tokens=tokens, shown=memories, start=start, items=tuple(items), forms=forms)


def _trim_until_fits(
    asked: request.RedactedTurn, memories: Sequence[ShownMemory], start: int, counter: TokenCounter, role: MaterialRole
) -> tuple[int, int]:
    """Move the cut forward until the whole prompt, counted at once, fits; returns the cut and the tokens."""
    while True:
        history = [line.message for line in asked.lines[start:]]
        prompt = render_messages(asked.system, history, memories, asked.user, role, asked.continuation)
        tokens = counter.count_messages(prompt)
        if tokens <= asked.limit or not history:
            return start, tokens
        later = (at for at in range(start + 1, len(asked.lines)) if asked.lines[at].opens)
        start = next(later, len(asked.lines))


def _record_history(lines: Sequence[request.HistoryLine], costs: Sequence[int], start: int, trace: Trace) -> None:
    for number, (line, cost) in enumerate(zip(lines, costs, strict=True)):
        message = message_candidate(line.at, str(line.message["role"]))
        if number < start:
            trace.drop(message, Reason.OVER_BUDGET, tokens=cost)
        else:
            trace.keep(message, tokens=cost)


def message_candidate(at: int, role: str) -> Candidate:
    """A history message as a ledger candidate."""
    return Candidate(id=f"history[{at}]", key=f"history[{at}]", text="", section="history", kind=role, redacted=True)


def _count_by_part(
    asked: request.RedactedTurn, history: Sequence[int], fixed: int, total: int, counter: TokenCounter
) -> Mapping[str, int]:
    """Tokens by part including framing; the parts add up to `total`."""
    system = counter.count_messages([{"role": "system", "content": asked.system}]) - counter.count_messages([])
    spent = sum(history)
    return {"system": system, "history": spent, "snippets": total - fixed - spent, "user": fixed - system}
