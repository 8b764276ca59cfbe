"""Messages as callers send them: checked field by field, so that nothing later can stumble over one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from contexture.errors import InvalidRequest
from contexture.retrieval.prepare import mended
from contexture.types import Message

Content: TypeAlias = "str | list[dict[str, Any]]"

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")


def message_of(value: object, at: str) -> Message:
    """The message that `value` is; `at` says where it stands, such as `history[3]`, in what is refused.

    Fields that hold nothing are left out. Content may be null only where an assistant calls tools.
    """
    given = _object(value, at)
    if unknown := sorted(name for name, held in given.items() if name not in FIELDS and held not in (None, [], {})):
        raise InvalidRequest(f"{at}.{unknown[0]} is not a field of a message; it has {', '.join(FIELDS)}")
    role = given.get("role")
    if role not in ROLES:
        raise InvalidRequest(f"{at}.role must be one of {', '.join(ROLES)}, not {role!r}")
    calls = _calls(given.get("tool_calls"), role, at)
    message: Message = {"role": role, "content": _content(given.get("content"), at, optional=bool(calls))}
    for name in ("name", "tool_call_id"):
        if given.get(name) is not None:
            message[name] = text_of(given[name], f"{at}.{name}")
    if role == "tool" and not message.get("tool_call_id"):
        raise InvalidRequest(f"{at}.tool_call_id must name the call that this is the result of")
    return {**message, "tool_calls": calls} if calls else message


def content_of(value: object, at: str) -> Content:
    """A text, or a list of parts in the way of chat APIs."""
    if isinstance(value, str):
        return mended(value)
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray):
        raise InvalidRequest(f"{at} must be a text or a list of parts, not {_kind(value)}")
    parts = cast("Sequence[object]", value)
    return [_part(part, f"{at}[{number}]") for number, part in enumerate(parts)]


def text_of(value: object, at: str) -> str:
    """A text, mended where it holds half a character."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{at} must be a text, not {_kind(value)}")
    return mended(value)


def words_of(content: object) -> str:
    """What can be read of a content: the text itself, or its text parts on lines of their own."""
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Mapping[str, Any]]", content or ())
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _content(value: object, at: str, *, optional: bool) -> Content | None:
    if value is None and optional:
        return None
    if value is None:
        raise InvalidRequest(f"{at}.content is null; only an assistant message with tool_calls may leave it out")
    return content_of(value, f"{at}.content")


def _part(value: object, at: str) -> dict[str, Any]:
    part = dict(_object(value, at))
    if not isinstance(part.get("type"), str):
        raise InvalidRequest(f"{at}.type must say what sort of part this is")
    if "text" in part["type"] or "text" in part:
        part["text"] = text_of(part.get("text"), f"{at}.text")
    return _jsonable(part, at)


def _calls(value: object, role: object, at: str) -> list[dict[str, Any]]:
    if value is None or value == []:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequest(f"{at}.tool_calls must be a list, not {_kind(value)}")
    if role != "assistant":
        raise InvalidRequest(f"{at}.tool_calls belong to an assistant message, not to {role!r}")
    calls = cast("Sequence[object]", value)
    return [_call(call, f"{at}.tool_calls[{number}]") for number, call in enumerate(calls)]


def _call(value: object, at: str) -> dict[str, Any]:
    call = dict(_object(value, at))
    call["id"] = text_of(call.get("id"), f"{at}.id")
    function = _object(call.get("function"), f"{at}.function")
    arguments = text_of(function.get("arguments", ""), f"{at}.function.arguments")
    name = text_of(function.get("name"), f"{at}.function.name")
    return _jsonable({**call, "function": {**function, "name": name, "arguments": arguments}}, at)


def _object(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{at} must be an object, not {_kind(value)}")
    held = cast("Mapping[Any, Any]", value)
    if odd := [name for name in held if not isinstance(name, str)]:
        raise InvalidRequest(f"{at} has a field {odd[0]!r}, whose name is not a text")
    return held


def _jsonable(value: dict[str, Any], at: str) -> dict[str, Any]:
    """The object with its fields in order of their names, in which a capsule writes them: parts are counted as JSON."""
    try:
        return json.loads(mended(json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"{at} cannot be written as JSON: {failure}") from failure


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
