"""The YAML that a Markdown file may begin with."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, cast

import yaml

from contexture.types import Json

_MARK = "---"
_DEEPEST = 20


def split_frontmatter(text: str) -> tuple[dict[str, Json], str, int, str]:
    """Its fields, the text behind it, the number of the text's first line, and what is wrong with it.

    A text without one, or with one that is not YAML, stays whole.
    """
    lines = text.split("\n")
    end = next((at for at, line in enumerate(lines[1:], start=1) if line.strip() in {_MARK, "..."}), None)
    if lines[0].strip() != _MARK or end is None:
        return {}, text, 1, ""
    try:
        found: object = yaml.safe_load("\n".join(lines[1:end]))
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        return {}, text, 1, f"the properties at the top are not YAML: {str(failure).split(chr(10), 1)[0]}"
    if found is not None and not isinstance(found, dict):
        return {}, text, 1, ""
    fields = {str(name): plain_value(value) for name, value in cast("dict[object, object]", found or {}).items()}
    return fields, "\n".join(lines[end + 1 :]), end + 2, ""


def plain_value(value: object, depth: int = 0) -> Json:
    """A value as JSON: dates as ISO texts, anything strange as its text."""
    if depth > _DEEPEST:
        return None
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date():
            return value.isoformat()
        case list():
            return [plain_value(each, depth + 1) for each in cast("list[object]", value)]
        case dict():
            inside = cast("dict[Any, object]", value)
            return {str(name): plain_value(each, depth + 1) for name, each in inside.items()}
        case _:
            return str(value)
