"""The request of a chat turn.

`Turn`, `TurnRecipe`, validation of messages field by field, and the redacted turn as a capsule stores it. Raises
`InvalidRequest` naming the field that is missing, unknown or of the wrong type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeAlias, cast, get_args

from msgspec import Meta

from contexture.builders.replay import read_recipe
from contexture.capsule import Capsule, convert_part
from contexture.conversation import RECALL_THRESHOLD, HealthState
from contexture.errors import InvalidRequest, NotPermitted
from contexture.json_objects import JsonForm, parse_object, read_whole_numbers
from contexture.pipeline.fence import FENCE_VERSION, MaterialRole
from contexture.pipeline.knapsack import Packer
from contexture.text.unicode import repair_text
from contexture.types import ChatMessage, ChatRole, ContentPart, Message, Scope

MAX_PROMPT_TOKENS = 100_000_000

Content: TypeAlias = "str | list[dict[str, Any]]"

ROLES: tuple[str, ...] = get_args(ChatRole)
MESSAGE_FIELDS = tuple(ChatMessage.__annotations__)


def check_message(value: object, at: str) -> Message:
    """Validate one message; `at` is its position, such as `history[3]`, for error messages.

    Empty fields are dropped. `content` may be null only for an assistant message with tool calls.
    """
    given = _check_object(value, at)
    if unknown := sorted(
        name for name, held in given.items() if name not in MESSAGE_FIELDS and held not in (None, [], {})
    ):
        raise InvalidRequest(f"{at}.{unknown[0]} is not a field of a message; it has {', '.join(MESSAGE_FIELDS)}")
    role = given.get("role")
    if role not in ROLES:
        raise InvalidRequest(f"{at}.role must be one of {', '.join(ROLES)}, not {role!r}")
    calls = _check_calls(given.get("tool_calls"), role, at)
    message: Message = {
        "role": role,
        "content": _check_optional_content(given.get("content"), at, optional=bool(calls)),
    }
    for name in ("name", "tool_call_id"):
        if given.get(name) is not None:
            message[name] = check_text(given[name], f"{at}.{name}")
    if role == "tool" and not message.get("tool_call_id"):
        raise InvalidRequest(f"{at}.tool_call_id must be the id of the tool call that it answers")
    return {**message, "tool_calls": calls} if calls else message


def check_content(value: object, at: str) -> Content:
    """Validate message content: a text, or a list of parts as in chat APIs."""
    if isinstance(value, str):
        return repair_text(value)
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray):
        raise InvalidRequest(f"{at} must be a string or a list of parts, not {_type_name(value)}")
    parts = cast("Sequence[object]", value)
    return [_check_part(part, f"{at}[{number}]") for number, part in enumerate(parts)]


def check_text(value: object, at: str) -> str:
    """Validate a text; lone surrogates are repaired."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{at} must be a string, not {_type_name(value)}")
    return repair_text(value)


def plain_text(content: object) -> str:
    """The readable text of a content: the text itself, or its text parts joined by newlines."""
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Mapping[str, Any]]", content or ())
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _check_optional_content(value: object, at: str, *, optional: bool) -> Content | None:
    if value is None and optional:
        return None
    if value is None:
        raise InvalidRequest(f"{at}.content is null; only an assistant message with tool_calls may leave it out")
    return check_content(value, f"{at}.content")


def _check_part(value: object, at: str) -> dict[str, Any]:
    part = dict(_check_object(value, at))
    if not isinstance(part.get("type"), str):
        raise InvalidRequest(f"{at}.type must say what sort of part this is")
    if "text" in part["type"] or "text" in part:
        part["text"] = check_text(part.get("text"), f"{at}.text")
    return _normalize_json(part, at)


def _check_calls(value: object, role: object, at: str) -> list[dict[str, Any]]:
    if value is None or value == []:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequest(f"{at}.tool_calls must be a list, not {_type_name(value)}")
    if role != "assistant":
        raise InvalidRequest(f"{at}.tool_calls belong to an assistant message, not to {role!r}")
    calls = cast("Sequence[object]", value)
    return [_check_call(call, f"{at}.tool_calls[{number}]") for number, call in enumerate(calls)]


def _check_call(value: object, at: str) -> dict[str, Any]:
    call = dict(_check_object(value, at))
    call["id"] = check_text(call.get("id"), f"{at}.id")
    if "type" in call:
        call["type"] = check_text(call["type"], f"{at}.type")
    function = _check_object(call.get("function"), f"{at}.function")
    arguments = check_text(function.get("arguments", ""), f"{at}.function.arguments")
    name = check_text(function.get("name"), f"{at}.function.name")
    return _normalize_json({**call, "function": {**function, "name": name, "arguments": arguments}}, at)


def _check_object(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{at} must be an object, not {_type_name(value)}")
    held = cast("Mapping[Any, Any]", value)
    if odd := [name for name in held if not isinstance(name, str)]:
        raise InvalidRequest(f"{at} has a field {odd[0]!r}, whose name is not a text")
    return held


def _normalize_json(value: dict[str, Any], at: str) -> dict[str, Any]:
    """The object with sorted keys, as a capsule writes it: tokens of parts are counted on their JSON.

    Raises `InvalidRequest` when it cannot be written as JSON.
    """
    try:
        return json.loads(repair_text(json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"{at} cannot be written as JSON: {failure}") from failure


def _type_name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def check_limit(value: object, at: str = "max_prompt_tokens") -> int:
    """Validate a token limit."""
    limit = read_whole_numbers(value)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_PROMPT_TOKENS:
        raise InvalidRequest(f"{at} must be a whole number from 1 to {MAX_PROMPT_TOKENS}, not {value!r}")
    return limit


def _check_history(value: object, at: str) -> tuple[Message, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequest(f"{at} must be a list of messages, not {type(value).__name__}")
    messages = cast("Sequence[object]", value)
    return tuple(check_message(message, f"{at}[{number}]") for number, message in enumerate(messages))


_TEXT = JsonForm(type=str, parse=check_text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One turn of a conversation.

    Turn(user_message="When does the ferry leave?", session_id="s-1", history=({"role": "user", "content": "Hello"},))
    """

    user_message: Annotated[
        Content,
        Meta(
            description="What the user says now: a text, or a list of parts as in chat APIs; not empty.",
            examples=["When does the ferry leave?"],
        ),
        JsonForm(type=str | list[ContentPart], parse=check_content),
    ]
    system_prompt: Annotated[
        str,
        Meta(description="Instructions of the application.", examples=["You are a helpful harbour guide."]),
        _TEXT,
    ] = ""
    history: Annotated[
        tuple[Message, ...],
        Meta(
            description="Messages so far, oldest first.",
            examples=[[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello Anna!"}]],
        ),
        JsonForm(type=list[ChatMessage], parse=_check_history),
    ] = ()
    continuation: Annotated[
        tuple[Message, ...],
        Meta(description="Messages after the user's, oldest first: tool calls and their results; never trimmed."),
        JsonForm(type=list[ChatMessage], parse=_check_history),
    ] = ()
    tenant_id: Annotated[str, Meta(description="Must match the caller."), _TEXT] = ""
    session_id: Annotated[
        str,
        Meta(description="The conversation; its memories are preferred.", examples=["s-1"]),
        _TEXT,
    ] = ""
    persona_id: Annotated[str, Meta(description="The persona that the assistant plays."), _TEXT] = ""
    user_id: Annotated[str, Meta(description="Must match the caller."), _TEXT] = ""
    max_prompt_tokens: Annotated[
        int | None,
        Meta(description="Token limit of the prompt; the configured one if left out.", examples=[2_000]),
        JsonForm(type=Annotated[int, Meta(ge=1, le=MAX_PROMPT_TOKENS)], parse=check_limit),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRecipe:
    """Settings for composing a turn prompt.

    `top_k` memories are recalled while the memory service is normal, `top_k_degraded` while it is degraded, none
    while it is down. `sharpness` is how steeply a memory's value falls with its score. When history must be
    trimmed, it is cut in steps of `history_step` times the limit, so that the next turns start with the same bytes
    (a stable prefix for prompt caches); 0 cuts no more than needed. `speaker_labels` labels a memory with its speaker
    and date instead of its source. `corrections` drops a statement that a newer one of the same speaker supersedes,
    and ranks the assistant's words and summaries below what the user said about the same thing. Memories use at most
    `memory_share` of the room while history needs the rest. `neighbours` messages before and after the best memories
    join them where there is room. When the question asks for a list, a memory loses `session_spread` of its score for
    each better one of its session beyond three, because a list may have been told in several sessions.
    `material_role` is the role of the message with memories.

    The defaults are those of the recipe `seed`; the setting `turn_recipe` chooses another one for the product.
    """

    packer: Packer = Packer.OPTIMAL
    max_tokens: int = 4_096
    top_k: int = 8
    top_k_degraded: int = 3
    threshold: float = RECALL_THRESHOLD
    degraded_seconds: float = 15.0
    near_duplicate: float = 0.85
    neighbour_lift: float = 0.0
    neighbours: int = 0
    session_spread: float = 0.0
    sharpness: float = 4.0
    history_step: float = 0.3
    namespace: str = "wm"
    universe: str = ""
    speaker_labels: bool = False
    corrections: bool = False
    memory_share: float = 1.0
    material_role: MaterialRole = MaterialRole.SYSTEM
    fence_version: int = FENCE_VERSION

    def max_memories(self, state: HealthState) -> int:
        """How many memories a prompt may contain in this health state."""
        return {HealthState.NORMAL: self.top_k, HealthState.DEGRADED: self.top_k_degraded}.get(state, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RedactedTurn:
    """A turn after redaction, with the token limit and memory state that apply to it; stored in the capsule."""

    system: str
    user: Content
    limit: int
    state: HealthState
    lines: tuple[HistoryLine, ...] = ()
    older: int = 0
    continuation: tuple[Message, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryLine:
    """A redacted message of the history; `at` is its index in the history sent.

    `opens` says that a trimmed history may start here: no later tool result belongs to an earlier call.
    """

    at: int
    message: Message
    opens: bool = True


def parse_turn(turn: Turn | Mapping[str, Any]) -> Turn:
    """Parse and validate a turn.

    Raises `InvalidRequest` naming the field that is missing, unknown or of the wrong type.
    """
    given = {each.name: getattr(turn, each.name) for each in fields(Turn)} if isinstance(turn, Turn) else turn
    parsed = parse_object(Turn, given, what="a turn")
    if not parsed.user_message or (isinstance(parsed.user_message, str) and not parsed.user_message.strip()):
        raise InvalidRequest("user_message is empty")
    return parsed


def resolve_scope(turn: Turn, scope: Scope | None, default: Scope) -> Scope:
    """The scope of a turn: `scope` if given, else the tenant and user that the turn names, else `default`.

    Raises `NotPermitted` when the turn names another tenant or user than `scope`.
    """
    if scope is None:
        named = Scope(tenant=turn.tenant_id or default.tenant, user=turn.user_id or default.user)
        return default if (named.tenant, named.user) == (default.tenant, default.user) else named
    if turn.tenant_id and turn.tenant_id != scope.tenant:
        raise NotPermitted(f"you may not act for tenant {turn.tenant_id!r}")
    if turn.user_id and turn.user_id != scope.user:
        raise NotPermitted(f"you may not act for user {turn.user_id!r}")
    return scope


CAPSULE_KIND = "turn"


def redacted_turn_to_json(asked: RedactedTurn) -> dict[str, Any]:
    """The redacted turn as the JSON object a capsule stores."""
    return {
        **asked.names,
        "system_prompt": asked.system,
        "user_message": asked.user,
        "max_prompt_tokens": asked.limit,
        "state": asked.state.value,
        "history": [{"at": line.at, "opens": line.opens, "message": line.message} for line in asked.lines],
        "older": asked.older,
        **({"continuation": list(asked.continuation)} if asked.continuation else {}),
    }


def redacted_turn_from_json(data: dict[str, Any]) -> RedactedTurn:
    """The inverse of `redacted_turn_to_json`."""
    names = {name: data.get(name) for name in ("tenant_id", "user_id", "session_id", "persona_id")}
    fields = {
        "system": data.get("system_prompt"),
        "user": data.get("user_message"),
        "limit": data.get("max_prompt_tokens"),
        "state": data.get("state"),
        "lines": data.get("history"),
        "older": data.get("older"),
        "continuation": data.get("continuation", []),
        "names": names,
    }
    return convert_part(fields, RedactedTurn, "a turn")


def read_turn_recipe(capsule: Capsule) -> TurnRecipe:
    """The recipe a turn capsule was built with; raises `InvalidRequest` when it has none."""
    return read_recipe(capsule, TurnRecipe, "a recipe for a turn")
