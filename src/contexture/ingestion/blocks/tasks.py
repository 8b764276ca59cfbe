"""Tasks and dates as note programs write them, in one vocabulary."""

from __future__ import annotations

import re
from datetime import date, datetime

from contexture.types import Json

DONE = frozenset({"DONE", "CANCELED", "CANCELLED"})
MARKERS = frozenset({"TODO", "DOING", "NOW", "LATER", "WAITING", "WAIT", "IN-PROGRESS", *DONE})

_MARKER = re.compile(rf"({'|'.join(sorted(MARKERS, key=len, reverse=True))})(?:[ \t]+|$)")
_PRIORITY = re.compile(r"\[#([A-Za-z])\][ \t]*")
_CHECKBOX = re.compile(r"\[([ xX/\-])\](?:[ \t]+|$)")
_STAMP = re.compile(r"(SCHEDULED|DEADLINE):[ \t]*<(\d{4}-\d{2}-\d{2})([^<>]*)>")
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})\b")
_EMOJI = re.compile(r"(?P<sign>📅|🗓️?|⏳|🛫|✅)[ \t]*(?P<day>\d{4}-\d{2}-\d{2})")
_INLINE = re.compile(r"[\[(]?\b(due|scheduled)::[ \t]*(?:\[\[)?(\d{4}-\d{2}-\d{2})(?:\]\])?[\])]?")
_SIGNS = {"⏳": "scheduled", "🛫": "start", "✅": "completed"}


def marked(text: str) -> tuple[str, dict[str, Json]] | None:
    """The text and state of a task that `TODO`, `DONE` and the like begin; None where none does."""
    found = _MARKER.match(text)
    if found is None:
        return None
    rest, state = text[found.end() :], _state(found[1])
    if priority := _PRIORITY.match(rest):
        state["priority"] = priority[1].upper()
        rest = rest[priority.end() :]
    return rest, state


def boxed(text: str) -> tuple[str, dict[str, Json]] | None:
    """The text and state of a task that `[ ]` or `[x]` begins; None where none does."""
    found = _CHECKBOX.match(text)
    if found is None:
        return None
    sign = found[1].lower()
    state = {" ": "TODO", "/": "DOING", "-": "CANCELED", "x": "DONE"}[sign]
    return text[found.end() :], _state(state)


def stamps(text: str) -> tuple[str, dict[str, Json]]:
    """The text without `SCHEDULED` and `DEADLINE`, and what they said; a deadline is what a task is due by."""
    if "SCHEDULED" not in text and "DEADLINE" not in text:
        return text, {}
    found: dict[str, Json] = {}
    for name, day, rest in _STAMP.findall(text):
        moment = _moment(day, rest)
        if moment:
            found["due" if name == "DEADLINE" else "scheduled"] = moment
    if not found:
        return text, {}
    left = _STAMP.sub("", text)
    return "\n".join(line.rstrip() for line in left.split("\n") if line.strip()), _with_due(found)


def signs(text: str) -> tuple[str, dict[str, Json]]:
    """The text without dates such as `📅 2026-01-31` and `[due:: 2026-01-31]`, and what they said."""
    found: dict[str, Json] = {}
    for each in _EMOJI.finditer(text):
        _keep(found, _SIGNS.get(each["sign"], "due"), each["day"])
    for name, day in _INLINE.findall(text):
        _keep(found, name, day)
    if not found:
        return text, {}
    return _INLINE.sub("", _EMOJI.sub("", text)).strip(), _with_due(found)


def iso_day(text: str) -> str | None:
    """The text when it is an ISO day or time, else None."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return None
    return text


def _state(marker: str) -> dict[str, Json]:
    return {"status": marker, "done": marker in DONE}


def _keep(found: dict[str, Json], name: str, day: str) -> None:
    if iso_day(day):
        found[name] = day


def _moment(day: str, rest: str) -> str | None:
    clock = _CLOCK.search(rest)
    try:
        return f"{day}T{int(clock[1]):02}:{clock[2]}" if clock else date.fromisoformat(day).isoformat()
    except ValueError:
        return None


def _with_due(found: dict[str, Json]) -> dict[str, Json]:
    """A task that is only scheduled is due then."""
    return found if "due" in found or "scheduled" not in found else {**found, "due": found["scheduled"]}
