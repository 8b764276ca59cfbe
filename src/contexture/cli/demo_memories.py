"""Memories in the demonstration: a team's, dated by the moment of loading, some of them read by few."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contexture.conversation import Memory
    from contexture.engine import Contexture
    from contexture.types import Scope

_USER = "user:"


async def remembered(
    engine: Contexture, folder: Path, loader: Scope, member: Callable[[str], Scope], now: datetime
) -> int:
    """Load the sample memories, dated as of `now`: a user's own as that user, the others as the loader; how many."""
    settings = engine.settings
    place = {"namespace": settings.memory_namespace, "universe": settings.memory_universe}
    by_owner: dict[str, list[Memory]] = {}
    for row in _rows(folder):
        by_owner.setdefault(_owner(row), []).append(_memory(row, place, now))
    for owner, memories in by_owner.items():
        await engine.memory.remember(member(owner) if owner else loader, memories)
    return sum(map(len, by_owner.values()))


def _rows(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def _owner(row: Mapping[str, Any]) -> str:
    """The user whose memory it is alone, or nothing."""
    return next((each.removeprefix(_USER) for each in row["readers"] if each.startswith(_USER)), "")


def _memory(row: Mapping[str, Any], place: Mapping[str, str], now: datetime) -> Memory:
    from contexture.adapters.memory.payloads import memory_from

    said = {name: value for name, value in row.items() if name != "age_hours"}
    return memory_from({**said, "timestamp": (now - timedelta(hours=row["age_hours"])).isoformat()}, **place)
