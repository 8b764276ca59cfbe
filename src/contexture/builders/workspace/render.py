"""The text of a workspace context: system and history first, then the template's four sections, the query last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from contexture.builders.workspace.request import RequestType
from contexture.builders.workspace.tree import BETWEEN
from contexture.builders.workspace.values import COLLECTED, ContextItem, SectionType
from contexture.pipeline.fence import DATA_NOTICE

NOTHING_FOUND = "_No relevant content found._"
TITLES: Mapping[str, str] = MappingProxyType(
    {
        SectionType.SYSTEM: "Instructions",
        SectionType.HISTORY: "Conversation History",
        SectionType.FOCUS: "Focused Content",
        SectionType.SEMANTIC: "Related Content",
        SectionType.RELATIONS: "Connected Items",
        SectionType.ACTIVITY: "Recent Activity",
    }
)
TASKS: Mapping[RequestType, str] = MappingProxyType(
    {
        RequestType.ASSIST: "Help the user with the focused content.",
        RequestType.CHAT: "Answer the user's question from the workspace content below.",
        RequestType.SEARCH: "Find what the user is looking for in the workspace content below.",
        RequestType.AUTOMATE: "Carry the task out with the workspace content below.",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a context consists of: items by section, those that are shown in the order they are shown.

    `sections` are those of the template that are not left out.
    """

    system: str
    sections: tuple[SectionType, ...]
    items: Mapping[str, Sequence[ContextItem]]
    query: str


def instructions(kind: RequestType, language: str | None) -> str:
    """What the model is told about the content, and about the answer."""
    return " ".join([DATA_NOTICE, TASKS[kind], *([f"Answer in the language {language!r}."] if language else [])])


def serialized(parts: Parts) -> str:
    """The whole context as one text."""
    history = parts.items.get(SectionType.HISTORY, ())
    before = [_titled(SectionType.SYSTEM, parts.system) if parts.system != DATA_NOTICE else DATA_NOTICE]
    if history:
        before.append(_titled(SectionType.HISTORY, listed(history)))
    inside = [
        _titled(section, listed(parts.items.get(section, ()))) for section in COLLECTED if section in parts.sections
    ]
    return "\n\n".join([*before, "## Current Context", *inside, "---", f"User Query: {parts.query}"])


def listed(items: Sequence[ContextItem]) -> str:
    """The items of a section, or the sentence that says there are none."""
    return "\n\n".join(map(shown, items)) or NOTHING_FOUND


def shown(item: ContextItem) -> str:
    """One item: `[page title] [type]`, where it stands, and what it says; titles and paths are labels already."""
    crumbs = BETWEEN.join(item.metadata.path)
    return f"{heading(item.metadata.page_title or '', item.block_type, crumbs)}{item.content}"


def heading(title: str, kind: str, crumbs: str) -> str:
    """What stands above an item's content: its page, its type and, where that says more, its path."""
    header = f"[{title}] [{kind}]" if title else f"[{kind}]"
    return f"{header}\n({crumbs})\n" if crumbs and crumbs != title else f"{header}\n"


def _titled(section: SectionType, body: str) -> str:
    return f"### {TITLES[section]}\n{body}"
