"""What a turn of a conversation asks for, and how its prompt is composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from contexture.builders.turn.messages import Content, content_of, message_of, text_of
from contexture.conversation import THRESHOLD, HealthState
from contexture.errors import InvalidRequest, NotPermitted
from contexture.pipeline.packers import Packer
from contexture.types import Message, Scope

MOST_TOKENS = 100_000_000
_NAMES = ("tenant_id", "session_id", "persona_id", "user_id", "system_prompt")
FIELDS = (*_NAMES, "user_message", "history", "max_prompt_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One turn of a conversation.

    Turn(user_message="When does the ferry leave?", session_id="s-1", history=({"role": "user", "content": "Hello"},))
    """

    user_message: Content
    system_prompt: str = ""
    history: tuple[Message, ...] = ()
    tenant_id: str = ""
    session_id: str = ""
    persona_id: str = ""
    user_id: str = ""
    max_prompt_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRecipe:
    """How a turn becomes a prompt.

    `top_k` memories are recalled while the memory service is well, `top_k_degraded` while it is degraded, none
    while it is down. `sharpness` is how steeply a memory's worth falls with its score. When history must be
    trimmed, it is cut at steps of `history_step` of the limit, so that the next turns begin with the same bytes;
    0 cuts no more than is needed.
    """

    packer: Packer = Packer.OPTIMAL
    max_tokens: int = 4_096
    top_k: int = 8
    top_k_degraded: int = 3
    threshold: float = THRESHOLD
    degraded_seconds: float = 15.0
    near_duplicate: float = 0.85
    neighbour_lift: float = 0.0
    sharpness: float = 4.0
    history_step: float = 0.3
    namespace: str = "wm"
    universe: str = ""

    def most(self, state: HealthState) -> int:
        """How many memories a prompt may hold in this state."""
        return {HealthState.NORMAL: self.top_k, HealthState.DEGRADED: self.top_k_degraded}.get(state, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A turn fit to be shown: redacted, with the limit and the state that hold for it."""

    system: str
    user: Content
    limit: int
    state: HealthState
    lines: tuple[Line, ...] = ()
    older: int = 0
    names: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A message of the history, redacted; `at` is its place in the history that was sent.

    `opens` says that the history may begin with it: no tool result from here on belongs to an earlier call.
    """

    at: int
    message: Message
    opens: bool = True


def turn_of(turn: Turn | Mapping[str, Any]) -> Turn:
    """The turn that was sent, checked; what is missing, unknown or of the wrong kind is named."""
    given = {name: getattr(turn, name) for name in FIELDS} if isinstance(turn, Turn) else _fields(turn)
    names = {name: text_of(given[name], name) for name in _NAMES if given.get(name) is not None}
    if given.get("user_message") is None:
        raise InvalidRequest("user_message is missing")
    message = content_of(given["user_message"], "user_message")
    if not message or (isinstance(message, str) and not message.strip()):
        raise InvalidRequest("user_message is empty")
    limit = given.get("max_prompt_tokens")
    return Turn(
        user_message=message,
        history=_history(given.get("history")),
        max_prompt_tokens=None if limit is None else limit_of(limit),
        **names,
    )


def limit_of(value: object) -> int:
    """A token limit that can be worked with."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_TOKENS:
        raise InvalidRequest(f"max_prompt_tokens must be a whole number from 1 to {MOST_TOKENS}, not {value!r}")
    return value


def scope_of(turn: Turn, scope: Scope | None, default: Scope) -> Scope:
    """Who asks: `scope`, which the turn may not contradict, or whom the turn names, or `default`."""
    if scope is None:
        named = Scope(tenant=turn.tenant_id or default.tenant, user=turn.user_id or default.user)
        return default if (named.tenant, named.user) == (default.tenant, default.user) else named
    if turn.tenant_id and turn.tenant_id != scope.tenant:
        raise NotPermitted(f"you may not act for tenant {turn.tenant_id!r}")
    if turn.user_id and turn.user_id != scope.user:
        raise NotPermitted(f"you may not act for user {turn.user_id!r}")
    return scope


def _fields(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(turn, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidRequest(f"a turn must be an object, not {type(turn).__name__}")
    if unknown := sorted(str(name) for name in turn if name not in FIELDS):
        raise InvalidRequest(f"unknown field {unknown[0]!r}; a turn has {', '.join(FIELDS)}")
    return turn


def _history(value: object) -> tuple[Message, ...]:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequest(f"history must be a list of messages, not {type(value).__name__}")
    messages = cast("Sequence[object]", value)
    return tuple(message_of(message, f"history[{at}]") for at, message in enumerate(messages))
