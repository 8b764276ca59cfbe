"""Every builder, with all its sources real, gives over the samples exactly the contexts that are kept here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from contexture import Contexture, Scope, Settings
from contexture.builders.query.request import QueryRequest
from contexture.cli._demo_samples import load_sample_memories, load_sample_news
from contexture.cli.demo import corpus_folder, memories_folder, news_folder
from contexture.ingestion.loader import load_records
from contexture.testing.doubles import NOON
from support.service import small_engine
from support.visual_conformance import document

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANNA = Scope(tenant="demo", user="anna", groups=("support",))
LOADER = Scope(tenant="demo", user="loader", groups=("support", "finance"))
TURN = {
    "tenant_id": "demo",
    "user_id": "anna",
    "session_id": "golden",
    "system_prompt": "You help the support of a maker of tide gauges.",
    "user_message": "Which firmware do the gauges of our subscribers need?",
    "history": [{"role": "user", "content": "Good morning."}, {"role": "assistant", "content": "Good morning, Anna."}],
}


async def query(engine: Contexture) -> Any:
    """A question over the corpus."""
    request = QueryRequest(query="How do I reset a gauge after a power cut?", max_tokens=400)
    return (await engine.build(request, scope=ANNA, now=NOON)).to_dict()


async def turn(engine: Contexture) -> Any:
    """A turn with memories, some of them read by support alone."""
    built = await engine.build_turn(TURN, scope=ANNA, now=NOON)
    return {
        "messages": built.messages,
        "token_counts": built.token_counts,
        "snippets": [asdict(snippet) for snippet in built.snippets],
        "ledger": built.ledger.entries,
        "degradations": built.degradations,
    }


async def command(engine: Contexture) -> Any:
    """A command over the news."""
    asked = {"raw_command": "/ask", "args": "query=dockers strike in the port window=24h k=6"}
    built = await engine.build_command(asked, scope=ANNA, now=NOON)
    return built.to_dict()


async def research(engine: Contexture) -> Any:
    """A question over pages, by words and by looks."""
    built = await engine.build_research("Which ships wait for the tide?", 3, scope=ANNA, now=NOON)
    return built.to_dict()


BUILDERS: dict[str, Callable[[Contexture], Awaitable[Any]]] = {
    "sample_query": query,
    "sample_turn": turn,
    "sample_command": command,
    "sample_research": research,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(store: str, lasting_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine with the samples, loaded at noon."""
    settings = Settings(home=lasting_folder(), store=store, tenant="demo", user="anna", groups=("support",))
    async with small_engine(settings) as found:
        await load_records(found, sorted(corpus_folder().iterdir()), collection=settings.collection, scope=LOADER)
        await load_sample_news(found, news_folder(), LOADER, NOON)
        await load_sample_memories(found, memories_folder(), LOADER, lambda name: Scope(tenant="demo", user=name), NOON)
        await found.pages.add(LOADER, document(), now=NOON)
        yield found


@pytest.mark.parametrize("name", BUILDERS)
async def test_a_context_is_the_golden_one(engine: Contexture, name: str, update_golden: bool) -> None:  # noqa: FBT001 - a fixture
    """Letter for letter, wherever the store is; scores to six digits, because processors round differently."""
    built = await BUILDERS[name](engine)
    told = json.loads(msgspec.json.encode(built), parse_float=lambda text: round(float(text), 6))
    path = Path(__file__).with_name(f"{name}.json")
    if update_golden:
        path.write_text(json.dumps(told, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    assert json.loads(path.read_text(encoding="utf-8")) == told
