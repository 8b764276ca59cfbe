"""From redacted material to a finished prompt: pure, so that a capsule rebuilds the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from contexture.builders.turn.heard import unheard
from contexture.builders.turn.history import cut, newest_exchange
from contexture.builders.turn.messages import words_of
from contexture.builders.turn.render import Shown, messages
from contexture.builders.turn.request import Asked, Line, TurnRecipe
from contexture.builders.turn.variants import Forms, forms_of, items_of
from contexture.errors import BudgetTooSmall
from contexture.ledger import Reason, Trace
from contexture.pipeline.dedupe import by_key, near_duplicates
from contexture.pipeline.fit import fit
from contexture.pipeline.pack import Item
from contexture.pipeline.packers import PACKERS
from contexture.pipeline.rank import ranked, top_k
from contexture.pipeline.validate import validate
from contexture.ports import TokenCounter
from contexture.types import Candidate, Message

Timed = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A prompt and what it was made of.

    History is kept from line `start` on; `unlimited` is what everything would have cost without a limit, and `items`
    are what the packer saw.
    """

    messages: tuple[Message, ...]
    tokens: int
    unlimited: int
    token_counts: Mapping[str, int]
    shown: tuple[Shown, ...]
    start: int
    items: tuple[Item, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Budgeted:
    """What the limit leaves: the memories, the line from which history is kept, and what the prompt then costs."""

    tokens: int
    shown: tuple[Shown, ...]
    start: int
    items: tuple[Item, ...]
    forms: Forms


def _untimed(_: str) -> AbstractContextManager[None]:
    return nullcontext()


def compose(
    asked: Asked,
    candidates: Sequence[Candidate],
    *,
    counter: TokenCounter,
    recipe: TurnRecipe,
    trace: Trace,
    timed: Timed = _untimed,
) -> Composed:
    """The prompt for a turn within its limit; every memory and every line of history gets its verdict."""
    with timed("ranking"):
        ranking = _eligible(candidates, asked, recipe, trace)
    with timed("tokenisation"):
        fixed = _fixed(asked, counter)
        empty = counter.count_messages([])
        costs = [counter.count_messages([line.message]) - empty for line in asked.lines]
        kept = unheard(ranking, _visible(asked, costs, fixed, recipe), trace, share=recipe.near_duplicate)
        chosen = _budgeted(asked, kept, costs, fixed, counter, recipe)
    with timed("prompt"):
        history = [line.message for line in asked.lines[chosen.start :]]
        prompt = messages(asked.system, history, chosen.shown, asked.user)
    _judge(asked.lines, costs, kept, chosen, trace)
    validate(
        tokens=chosen.tokens,
        limit=asked.limit,
        shown=[candidate for candidate, _ in chosen.shown],
        texts=[form.text for _, form in chosen.shown],
    )
    return Composed(
        messages=prompt,
        tokens=chosen.tokens,
        unlimited=fixed + sum(costs) + sum(item.options[0].tokens for item in chosen.items),
        token_counts=_parts(asked, costs[chosen.start :], fixed, chosen.tokens, counter),
        shown=chosen.shown,
        start=chosen.start,
        items=chosen.items,
    )


def _fixed(asked: Asked, counter: TokenCounter) -> int:
    """What system and user cost; more than the limit is an error that says how much of it is whose."""
    tokens = counter.count_messages(messages(asked.system, (), (), asked.user))
    if tokens > asked.limit:
        parts = _parts(asked, (), tokens, tokens, counter)
        raise BudgetTooSmall(tokens, asked.limit, {name: parts[name] for name in ("system", "user")})
    return tokens


def _visible(asked: Asked, costs: Sequence[int], fixed: int, recipe: TurnRecipe) -> Sequence[Line]:
    """The history that would be shown if there were no memories."""
    return asked.lines[cut(asked.lines, costs, asked.limit - fixed, int(recipe.history_step * asked.limit)) :]


def _eligible(candidates: Sequence[Candidate], asked: Asked, recipe: TurnRecipe, trace: Trace) -> list[Candidate]:
    """Memories worth packing, best first: no copies, and no more than the state allows."""
    single = by_key(candidates, trace)
    for candidate in single:
        if not candidate.text.strip():
            trace.drop(candidate, Reason.EMPTY)
    spoken = ranked(candidate for candidate in single if candidate.text.strip())
    return top_k(near_duplicates(spoken, trace, threshold=recipe.near_duplicate), recipe.most(asked.state), trace)


def _budgeted(
    asked: Asked, kept: Sequence[Candidate], costs: Sequence[int], fixed: int, counter: TokenCounter, recipe: TurnRecipe
) -> _Budgeted:
    """Memories first, then history; but the newest exchange keeps its place if half of the room holds it."""
    room = asked.limit - fixed
    reserve = sum(costs[newest_exchange(asked.lines) :])
    reserve = reserve if 2 * reserve <= room else 0
    forms = forms_of(kept, query=words_of(asked.user), counter=counter, sharpness=recipe.sharpness, room=room - reserve)
    items = items_of(kept, forms)

    def shown(chosen: Mapping[str, int]) -> tuple[Shown, ...]:
        return tuple((each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen)

    def count(chosen: Mapping[str, int]) -> int:
        return counter.count_messages(messages(asked.system, (), shown(chosen), asked.user))

    fitted = fit(items, asked.limit - reserve, PACKERS[recipe.packer], count)
    memories = shown(fitted.packing.chosen)
    start = cut(asked.lines, costs, asked.limit - fitted.tokens, int(recipe.history_step * asked.limit))
    start, tokens = _settled(asked, memories, start, counter)
    return _Budgeted(tokens=tokens, shown=memories, start=start, items=tuple(items), forms=forms)


def _settled(asked: Asked, memories: Sequence[Shown], start: int, counter: TokenCounter) -> tuple[int, int]:
    """The cut, moved on until the prompt counted as a whole fits: a whole may cost more than its parts."""
    while True:
        history = [line.message for line in asked.lines[start:]]
        tokens = counter.count_messages(messages(asked.system, history, memories, asked.user))
        if tokens <= asked.limit or not history:
            return start, tokens
        later = (at for at in range(start + 1, len(asked.lines)) if asked.lines[at].opens)
        start = next(later, len(asked.lines))


def _judge(
    lines: Sequence[Line], costs: Sequence[int], kept: Sequence[Candidate], chosen: _Budgeted, trace: Trace
) -> None:
    shown = {candidate.id: form for candidate, form in chosen.shown}
    for candidate in kept:
        form = shown.get(candidate.id)
        if form is None:
            trace.drop(candidate, Reason.OVER_BUDGET, tokens=chosen.forms[candidate.id][0].tokens)
        else:
            trace.keep(candidate, tokens=form.tokens, form=form.form)
    for number, (line, cost) in enumerate(zip(lines, costs, strict=True)):
        message = line_candidate(line.at, str(line.message["role"]))
        if number < chosen.start:
            trace.drop(message, Reason.OVER_BUDGET, tokens=cost)
        else:
            trace.keep(message, tokens=cost)


def line_candidate(at: int, role: str) -> Candidate:
    """A message of the history as the ledger knows it."""
    return Candidate(id=f"history[{at}]", key=f"history[{at}]", text="", section="history", kind=role, redacted=True)


def _parts(asked: Asked, history: Sequence[int], fixed: int, total: int, counter: TokenCounter) -> Mapping[str, int]:
    """Tokens by part with their framing; they add up to the total."""
    system = counter.count_messages([{"role": "system", "content": asked.system}]) - counter.count_messages([])
    spent = sum(history)
    return {"system": system, "history": spent, "snippets": total - fixed - spent, "user": fixed - system}
