"""Rebuilds the prompt of a capsule, to replay it or to explain its candidates.

Explanations say why a candidate was kept or dropped, and which extra tokens or score would have admitted it. This
module knows no builder: each gives a function that composes its prompt again, and `CapsuleReplayer` is given them all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias, TypeVar, cast

from msgspec.structs import replace as changed
from typing_extensions import TypedDict

from contexture.capsule import Capsule, convert_part, digest_messages
from contexture.errors import NotFound, ReplayMismatch
from contexture.ledger import Ledger, LedgerEntry, Reason, State, Trace
from contexture.ports import TokenCounter
from contexture.results import JsonResult
from contexture.types import Message

T = TypeVar("T")

_BISECTION_STEPS = 20  # gives scores to six digits
_MAX_SCORE = 64.0  # above any search score: if it does not admit a candidate, no score does


class ComposedPrompt(NamedTuple):
    """The messages of a prompt, and the tokens that it would have without a limit."""

    messages: tuple[Message, ...]
    unlimited: int


RecomposeFunction: TypeAlias = Callable[[Capsule, int, TokenCounter, Trace], ComposedPrompt]
"""Composes the prompt of a capsule again, from its request, settings and candidates, with so many more tokens.

Pure: equal arguments give equal messages. Every candidate of the capsule gets a verdict in the trace. Raises
`InvalidRequest` for a capsule that lacks what the builder needs.
"""


_FIRST_LAYOUT = {"material_role": "system", "fence_version": 1}  # of capsules that do not name theirs


def read_recipe(capsule: Capsule, kind: type[T], what: str) -> T:
    """The recipe a capsule was built with, with the first layout where it names none.

    Raises `InvalidRequest` naming `what` when there is none.
    """
    stored: object = capsule.settings.get("recipe")
    named = {**_FIRST_LAYOUT, **cast("dict[str, object]", stored)} if isinstance(stored, dict) else stored
    return convert_part(named, kind, what)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildChange:
    """A change to try on a rebuild: more tokens, and other scores for some candidates."""

    more_tokens: int = 0
    scores: Mapping[str, float] = field(default_factory=dict[str, float])


NO_CHANGE = BuildChange()


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuiltPrompt:
    """The prompt and ledger of a rebuild; `plenty` is a number of extra tokens with which every candidate would fit."""

    messages: tuple[Message, ...]
    ledger: Ledger
    plenty: int


class ExplanationJson(TypedDict):
    """The verdict on a candidate, and the smallest changes that would have admitted it."""

    build_id: str
    candidate: LedgerEntry
    more_tokens: int | None
    score_needed: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation(JsonResult):
    """A ledger entry and the changes that would have admitted its candidate; None where no change would.

    With `more_tokens` added to the budget, or with `score_needed` as its score, the same candidates
    give a prompt that contains this one; one token less does not. Both are found by rebuilding, not estimated.
    """

    entry: LedgerEntry
    more_tokens: int | None = None
    score_needed: float | None = None
    build_id: str = ""

    def json_form(self) -> ExplanationJson:
        """The candidate, and the smallest changes that would have admitted it."""
        return {
            "build_id": self.build_id,
            "candidate": self.entry,
            "more_tokens": self.more_tokens,
            "score_needed": self.score_needed,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class CapsuleReplayer:
    """Rebuilds capsules.

    `recompose` gives the function of a kind, or raises `InvalidRequest`; `counter_for` the token counter of a model and
    of an encoding, which old capsules do not name.
    """

    recompose: Callable[[str], RecomposeFunction]
    counter_for: Callable[[str, str | None], TokenCounter]

    def rebuild(self, capsule: Capsule, change: BuildChange = NO_CHANGE) -> RebuiltPrompt:
        """The prompt of a capsule, with an optional change; the same capsule and change give the same bytes.

        Its ledger includes the entries and degradations that the capsule recorded before redaction. Raises
        `InvalidRequest` for a capsule of an unknown kind.
        """
        recompose = self.recompose(capsule.kind)
        scored = tuple(changed(each, score=change.scores.get(each.id, each.score)) for each in capsule.candidates)
        trace = Trace()
        counter = self.counter_for(capsule.model, capsule.encoding)
        composed = recompose(replace(capsule, candidates=scored), change.more_tokens, counter, trace)
        ledger = Ledger(entries=(*capsule.lost, *trace.finish(scored).entries), degradations=capsule.degradations)
        return RebuiltPrompt(messages=composed.messages, ledger=ledger, plenty=2 * composed.unlimited)

    def replay(self, capsule: Capsule) -> RebuiltPrompt:
        """The rebuilt prompt; raises `ReplayMismatch` unless its messages are those of the capsule."""
        built = self.rebuild(capsule)
        digest = digest_messages(built.messages)
        if built.messages != capsule.messages or digest != capsule.digest:
            raise ReplayMismatch(f"the capsule has the digest {capsule.digest[:12]}, the replay gives {digest[:12]}")
        return built

    def explain(self, capsule: Capsule, candidate_id: str) -> Explanation:
        """The ledger entry of one candidate, and the fewest extra tokens and lowest score that would have admitted it.

        Raises `NotFound` when the build had no such candidate.
        """
        built = self.rebuild(capsule)
        entry = built.ledger.find(candidate_id)
        if entry is None:
            raise NotFound(f"this build had no candidate {candidate_id!r}")
        if entry.state is not State.DROPPED or entry in capsule.lost:
            return Explanation(entry=entry, build_id=capsule.build_id)

        def admits(change: BuildChange) -> bool:
            found = self.rebuild(capsule, change).ledger.find(candidate_id)
            return found is not None and found.state is not State.DROPPED

        return Explanation(
            entry=entry,
            build_id=capsule.build_id,
            more_tokens=_find_least_tokens(built.plenty, lambda more: admits(BuildChange(more_tokens=more)))
            if entry.reason is Reason.OVER_BUDGET
            else None,
            score_needed=_find_least_score(
                entry.score, lambda score: admits(BuildChange(scores={candidate_id: score}))
            ),
        )


def _find_least_tokens(high: int, admits: Callable[[int], bool]) -> int | None:
    """The fewest extra tokens that admit the candidate, by bisection; None when even `high` do not."""
    if not admits(high):
        return None
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


def _find_least_score(low: float, admits: Callable[[float], bool]) -> float | None:
    """The lowest score above `low` that admits the candidate, to six digits, by bisection; None when none does."""
    high = next((score for score in (1.0, _MAX_SCORE) if score > low and admits(score)), None)
    if high is None:
        return None
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high
