"""How builds of every kind are done again."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from contexture.builders.command import explain as command
from contexture.builders.explain import Rebuild
from contexture.builders.query import explain as query
from contexture.builders.research import explain as research
from contexture.builders.turn import explain as turn
from contexture.builders.workspace import explain as workspace
from contexture.capsule import Capsule
from contexture.errors import InvalidRequest

REBUILDS: Mapping[str, Rebuild] = MappingProxyType(
    {
        "query": query.rebuild,
        "turn": turn.rebuild,
        "command": command.rebuild,
        "research": research.rebuild,
        "workspace": workspace.rebuild,
    }
)


def rebuild_of(capsule: Capsule) -> Rebuild:
    """What does the build in a capsule again."""
    found = REBUILDS.get(capsule.kind)
    if found is None:
        raise InvalidRequest(f"this capsule holds a build of kind {capsule.kind!r}; known are {', '.join(REBUILDS)}")
    return found
