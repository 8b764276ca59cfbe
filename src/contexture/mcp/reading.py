"""How an answer reads as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec


def as_json(answer: Mapping[str, Any]) -> str:
    """The whole answer as JSON."""
    return msgspec.json.encode(answer).decode()


def field_of(name: str) -> Callable[[Mapping[str, Any]], str]:
    """One text of the answer."""
    return lambda answer: str(answer[name])


def conversation(answer: Mapping[str, Any]) -> str:
    """Messages one below the other, each behind its role."""
    return "\n\n".join(f"[{each['role']}]\n{_content(each.get('content'))}" for each in answer["messages"])


def _content(said: object) -> str:
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()
