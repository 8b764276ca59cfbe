"""The three example requests of the specification give, on the sample workspace, exactly the kept contexts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from contexture import Contexture, Scope, Settings
from contexture.builders.workspace.result import ContextPayload
from contexture.cli._demo_samples import load_sample_workspace
from contexture.testing.doubles import NOON
from contexture.workspace import is_done, task_due
from support.service import small_engine

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLE = Path(__file__).parents[2] / "examples" / "workspace"
DEMO = Scope(tenant="demo", user="demo", groups=("staff",))
FLOWS: dict[str, dict[str, Any]] = {
    "workspace_summary": {
        "query": "Summarize this page",
        "focus": {"pageId": "gauge-launch"},
        "type": "assist",
        "tokenBudget": {
            "total": 3000, "focus": 2500, "semantic": 200, "relations": 200, "activity": 0, "history": 0, "system": 100
        },
    },
    "workspace_overdue": {
        "query": "What tasks are overdue?",
        "type": "chat",
        "tokenBudget": {
            "total": 4000, "focus": 0, "semantic": 2500, "relations": 500,
            "activity": 500, "history": 300, "system": 200
        },
        "hints": {"prioritizeTypes": ["todo", "kanban_card"]},
    },
    "workspace_breakdown": {
        "query": "Break this task into subtasks",
        "focus": {"blockId": "task-456"},
        "type": "assist",
        "tokenBudget": {
            "total": 2000, "focus": 1200, "semantic": 500, "relations": 200, "activity": 0, "history": 0, "system": 100
        },
    },
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(store: str, lasting_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine with the sample workspace, loaded at noon."""
    settings = Settings(home=lasting_folder(), store=store, tenant="demo", user="demo", groups=("staff",))
    async with small_engine(settings) as found:
        member = lambda name: Scope(tenant="demo", user=name, groups=("staff",))  # noqa: E731 - one expression
        await load_sample_workspace(found, SAMPLE, DEMO, member, NOON)
        yield found


async def flow(engine: Contexture, name: str) -> ContextPayload:
    """The context of one example."""
    return await engine.build_workspace(FLOWS[name], scope=DEMO, now=NOON)


@pytest.mark.parametrize("name", FLOWS)
async def test_a_context_is_the_golden_one(engine: Contexture, name: str, update_golden: bool) -> None:  # noqa: FBT001 - a fixture
    """Letter for letter."""
    built = await flow(engine, name)
    path = Path(__file__).with_name(f"{name}.txt")
    if update_golden:
        path.write_text(built.serialized + "\n", encoding="utf-8")

    assert path.read_text(encoding="utf-8") == built.serialized + "\n"
    assert () == engine.workspaces.validate(built).errors


async def test_a_summary_is_mostly_what_stands_on_the_page(engine: Contexture) -> None:
    """The page and its blocks take most of what is spent."""
    built = await flow(engine, "workspace_summary")
    spent = {str(section.type): section.token_count for section in built.sections}

    assert spent["focus"] > sum(spent.values()) / 2
    assert {"system", "focus", "semantic", "relations"} == set(spent)


async def test_the_overdue_tasks_come_first_and_are_all_there(engine: Contexture) -> None:
    """Exactly those that are open, have a date that is over, and that the user may read."""
    built = await flow(engine, "workspace_overdue")
    section = built.section("semantic")
    dated = await engine.blocks.tasks(DEMO, open_only=False, limit=1_000)
    late = {block.id for block in dated if not is_done(block) and (due := task_due(block)) and due < NOON}

    assert section is not None
    assert late == {item.block_id for item in section.items[: len(late)]}
    assert len(late) > 3


async def test_a_breakdown_has_the_task_and_similar_ones(engine: Contexture) -> None:
    """The task is the first of the focus, and the search found other tasks."""
    built = await flow(engine, "workspace_breakdown")
    focus, found = built.section("focus"), built.section("semantic")

    assert focus is not None
    assert found is not None
    assert FLOWS["workspace_breakdown"]["focus"]["blockId"] == focus.items[0].block_id
    assert "todo" in {item.block_type for item in found.items}
