"""The workspace specification, section by section, and what it forbids."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from contexture.builders.workspace import _collect as collect
from contexture.builders.workspace._render import NOTHING_FOUND, SECTION_TITLES
from contexture.builders.workspace.build import WorkspaceContextBuilder
from contexture.builders.workspace.request import (
    ContextHints,
    ContextRequest,
    ConversationMessage,
    RequestType,
    TokenBudget,
)
from contexture.builders.workspace.result import (
    ContextItem,
    ContextMetadata,
    ContextSection,
    ContextValidationResult,
    SectionType,
)
from contexture.errors import BudgetTooSmall
from contexture.pipeline.scoring import linear_decay, structural_proximity
from contexture.pipeline.truncation import TruncationStrategy
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.workspace import Block, BlockStore, BlockType
from support.workspaces import WorkspaceBench, workspace_bench

ANNA = Scope(tenant="local", user="anna")
PAGE = Block(id="p", type=BlockType.PAGE, text="Plan", modified=NOON)
TASK = Block(id="t", type=BlockType.TODO, text="Mend the pump", parent="p", modified=NOON)


@pytest.fixture
async def bench(new_folder: Callable[[], Path]) -> AsyncIterator[WorkspaceBench]:
    """A page with a task."""
    async with workspace_bench(new_folder()) as found:
        await found.load([PAGE, TASK])
        yield found


def wire(kind: type[msgspec.Struct]) -> set[str]:
    """The names that a value has on the wire."""
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def test_the_builder_has_its_three_methods() -> None:
    """Build, estimate, validate."""
    assert all(hasattr(WorkspaceContextBuilder, name) for name in ("build", "estimate_tokens", "validate"))
    assert inspect.iscoroutinefunction(WorkspaceContextBuilder.build)


def test_values_have_their_names_on_the_wire() -> None:
    """Requests, budgets, hints, sections, items and metadata, each with every documented field."""
    assert {"query", "focus", "type", "user", "conversationHistory", "tokenBudget", "hints"} == wire(ContextRequest)
    assert {"total", "focus", "semantic", "relations", "history", "system"} <= wire(TokenBudget)
    assert {"prioritizeTypes", "timeRange", "includeBlocks", "excludeBlocks", "maxDepth"} == wire(ContextHints)
    assert {"type", "title", "items", "tokenCount"} == wire(ContextSection)
    assert {"blockId", "blockType", "content", "relevance", "metadata"} == wire(ContextItem)
    assert {
        "totalTokens", "focusBlockId", "focusPageId", "timestamp", "collectorsUsed", "blocksIncluded",
        "blocksConsidered",
    } <= wire(ContextMetadata)  # fmt: skip
    assert {"valid", "errors", "warnings"} == wire(ContextValidationResult)
    assert {"role", "content"} <= wire(ConversationMessage)


def test_kinds_have_their_names() -> None:
    """Request types, section types and truncation strategies."""
    assert {"assist", "chat", "search", "automate"} == {kind.value for kind in RequestType}
    assert {"focus", "semantic", "relations", "activity", "history", "system"} == {kind.value for kind in SectionType}
    assert {"keep_start", "keep_end", "extractive", "summarize"} == {kind.value for kind in TruncationStrategy}


def test_relevance_starts_and_falls_as_documented() -> None:
    """The numbers of the four collectors."""
    assert (1.0, 0.9, 0.1) == (collect.FOCUS_RELEVANCE, collect.ANCESTOR_RELEVANCE, collect.ANCESTOR_STEP)
    assert (0.8, 0.85, 0.05) == (collect.SIBLING_RELEVANCE, collect.CHILD_RELEVANCE, collect.NEIGHBOUR_STEP)
    assert (0.75, 0.7, 0.65) == (
        collect.RELATED_RELEVANCE,
        collect.LINKED_RELEVANCE,
        collect.BACKLINKED_RELEVANCE,
    )
    assert (0.6, 0.5, 0.02) == (collect.EDITED_RELEVANCE, collect.VIEWED_RELEVANCE, collect.ACTIVITY_STEP)


def test_structure_and_recency_are_the_documented_formulas() -> None:
    """A tenth less for each step, nothing below 0, .5 without a focus; a thirtieth less for each day."""
    assert [1.0, 0.8, 0.0, 0.5] == pytest.approx([structural_proximity(steps) for steps in (0, 2, 12, None)])
    assert [1.0, 0.5, 0.0] == pytest.approx([linear_decay(NOON - timedelta(days=days), NOON) for days in (0, 15, 45)])


async def test_the_template_is_the_documented_one(bench: WorkspaceBench) -> None:
    """Its four sections in their order, the query behind a line, headers with page title and type."""
    found = await bench.builder.build({"query": "Mend what?", "focus": {"blockId": "t"}}, scope=ANNA)
    places = [
        found.serialized.index(f"### {SECTION_TITLES[name]}\n")
        for name in ("focus", "semantic", "relations", "activity")
    ]

    assert sorted(places) == places
    assert found.serialized.index("## Current Context") < places[0]
    assert found.serialized.endswith("\n\n---\n\nUser Query: Mend what?")
    assert "[Plan] [todo]\n- [ ] Mend the pump" in found.serialized
    assert f"### Connected Items\n{NOTHING_FOUND}" in found.serialized


# --- what must never happen ---


def test_nobody_can_pass_the_entire_workspace() -> None:
    """No read of the store gives everything: each names blocks, or takes a limit."""
    for name, method in inspect.getmembers(BlockStore, inspect.isfunction):
        if not name.startswith("_"):
            assert {"ids", "block_id", "limit", "limits"} & set(inspect.signature(method).parameters), name


def test_nobody_can_read_without_a_scope() -> None:
    """Every read of the store takes one, and it has no default."""
    for name, method in inspect.getmembers(BlockStore, inspect.isfunction):
        if not name.startswith("_"):
            asked = inspect.signature(method).parameters["scope"]
            assert asked.default is inspect.Parameter.empty, name


async def test_nobody_can_skip_the_budget(bench: WorkspaceBench) -> None:
    """A request without one has the configured one, and too small a one is an error instead of a large context."""
    many = [Block(id=f"x{at}", type=BlockType.PARAGRAPH, text=f"pump {at} " * 60) for at in range(60)]
    builder = await bench.load(many)
    found = await builder.build({"query": "pump"}, scope=ANNA)

    assert found.metadata.total_tokens <= 4_000
    with pytest.raises(BudgetTooSmall):
        await builder.build({"query": "pump", "tokenBudget": {"total": 1}}, scope=ANNA)


async def test_nobody_gets_a_static_context(bench: WorkspaceBench) -> None:
    """Another query, focus, user or time gives another context; a context is never handed in."""
    builder = bench.builder
    base = await builder.build({"query": "pump"}, scope=ANNA)
    others = [
        await builder.build({"query": "valve"}, scope=ANNA),
        await builder.build({"query": "pump", "focus": {"pageId": "p"}}, scope=ANNA),
    ]

    assert base.serialized not in [other.serialized for other in others]
    assert {"request", "scope", "now", "self"} == set(inspect.signature(WorkspaceContextBuilder.build).parameters)
