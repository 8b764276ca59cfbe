"""The specification's examples, tables and test cases for commands, against the real store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from contexture.builders.command.request import select_models
from contexture.builders.command.syntax import Command
from contexture.cli.main import app
from contexture.config import Settings
from contexture.engine import open_store
from contexture.errors import CommandError, CommandRefused, NothingFound
from contexture.service.envelope import encode_json
from contexture.testing.doubles import NOON
from support.commands import article
from support.service import small_engine

ENV = {
    "defaults": {
        "window": "24h",
        "k_final": 6,
        "lang": "auto",
        "rerank_enabled": True,
        "timeout_s": 18,
        "budget_cents": 60,
        "max_tokens": 4096,
    },
    "feature_flags": {
        "enable_rerank": True,
        "auto_expand_window": True,
        "relax_filters_on_empty": True,
        "fallback_rerank_false_on_empty": True,
    },
    "version": "phase3-orchestrator",
}
NEWS = [
    *(article(f"ai{at}", f"AI breakthroughs number {at} surprise the world.", hours=at + 1) for at in range(10)),
    *(article(f"ml{at}", f"Machine learning trends of kind {at} grow.", hours=6 * at + 2) for at in range(7)),
    article("storm", "Storms close the northern harbour.", hours=60),
    article("dam", "A dam breaks in the valley.", hours=24 * 5),
    article("flood", "Наводнение затопило старый город.", hours=2, lang="ru"),
]


def typed(command, args="", **changes):
    """A command in the specification's surroundings."""
    flags = {**ENV["feature_flags"], **changes}
    env = {**ENV, "feature_flags": flags}
    ab_test = {"experiment": None, "arm": None}
    return {"raw_command": command, "args": args, "user_lang": "en", "env": env, "ab_test": ab_test}


@pytest.fixture
async def engine(new_folder):
    """An engine over the real index with some news; the small embedder's likenesses are accidents, so words decide."""
    async with small_engine(Settings(home=new_folder(), search_floor=1)) as found:
        await found.news.add(found.scope, NEWS, now=NOON)
        yield found


async def test_example_ask(engine):
    """`/ask` with window, language, topic and k gives eight documents and everything around them."""
    shown = (await engine.build_command(typed("/ask --depth=deep", "window=24h lang=en topic=AI k=8"))).to_dict()

    assert shown["command"] == "/ask --depth=deep"
    assert shown["params"] == {
        "window": "24h",
        "lang": "en",
        "sources": None,
        "topic": "AI",
        "entity": None,
        "domains": None,
        "query": None,
        "k_final": 8,
        "flags": {"rerank_enabled": True},
    }
    found = shown["retrieval"]
    assert [8, 8, "24h", "en", None, True] == [
        len(found["docs"]),
        *(found[name] for name in ("k_final", "window", "lang", "sources", "rerank_enabled")),
    ]
    assert shown["models"] == {"primary": "gpt-5", "fallback": ["claude-4.5", "gemini-2.5-pro"]}
    assert shown["limits"] == {"max_tokens": 4096, "budget_cents": 60, "timeout_s": 18}
    assert shown["telemetry"]["correlation_id"].startswith("ctx-")
    assert shown["telemetry"]["version"] == "phase3-orchestrator"
    assert shown["ab_test"] == {"experiment": None, "arm": None}


async def test_the_context_has_the_documented_keys(engine):
    """Nothing is missing of what the specification has, and what is added stands under keys of its own."""
    shown = (await engine.build_command(typed("/ask", "topic=AI"))).to_dict()

    specified = "command params retrieval graph memory models limits telemetry ab_test".split()
    assert [*specified, "recovery", "degradations", "ledger", "citations", "messages", "tokens", "digest"] == list(
        shown
    )
    assert "article_id title url date lang score snippet".split() == list(shown["retrieval"]["docs"][0])
    assert "docs window lang sources k_final rerank_enabled".split() == list(shown["retrieval"])


async def test_example_graph(engine):
    """`/graph query` plans a graph of two hops; entities and relations are found when it is executed."""
    shown = (await engine.build_command(typed("/graph query", 'query="machine learning trends" window=3d'))).to_dict()

    assert shown["graph"] == {
        "enabled": True,
        "entities": None,
        "relations": None,
        "build_policy": "on_demand",
        "hop_limit": 2,
    }
    assert shown["params"]["query"] == "machine learning trends"
    assert shown["params"]["window"] == "3d"
    assert shown["memory"] == {"enabled": False, "episodic": None, "semantic_keys": None}


async def test_example_memory(engine):
    """`/memory recall` has its query as a key that lives for ninety days."""
    shown = (await engine.build_command(typed("/memory recall", "query=AI breakthroughs window=1w"))).to_dict()

    assert shown["memory"] == {
        "enabled": True,
        "episodic": None,
        "semantic_keys": [{"key": "AI breakthroughs", "ttl_days": 90}],
    }
    assert shown["graph"] == {
        "enabled": False,
        "entities": None,
        "relations": None,
        "build_policy": "cached_only",
        "hop_limit": 1,
    }


async def test_example_recovery(engine):
    """A narrow window is widened until something is found."""
    built = await engine.build_command(typed("/ask --depth=deep", "window=6h topic=storms"))

    assert built.to_dict()["retrieval"]["window"] == "3d"
    assert [each.article_id for each in built.retrieval.docs] == ["storm"]


async def test_example_nothing_found(engine):
    """When nothing helps, the error names every step in order."""
    with pytest.raises(NothingFound) as nothing:
        await engine.build_command(typed("/ask --depth=deep", "window=6h topic=zeppelins"))

    told = nothing.value.to_dict()
    assert told["error"] == {
        "code": "NO_DATA",
        "user_message": "No documents found for query",
        "tech_message": "Retrieval returned 0 documents after auto-recovery. Steps: expanded window to 12h, "
        "expanded window to 24h, expanded window to 3d, expanded window to 1w, expanded window to 2w, "
        "relaxed lang to auto, disabled rerank",
        "retryable": True,
        "message": "No documents found for query",  # beyond the original: what SDKs show
        "type": "invalid_request_error",
    }
    assert told["meta"]["version"] == "phase3-orchestrator"
    assert len(told["meta"]["correlation_id"]) == len("ctx-error-12345678")


async def test_case_events_with_a_topic(engine):
    """`/events link` with a topic builds a context for linking events."""
    shown = (await engine.build_command(typed("/events", 'topic="AI breakthroughs" lang=en'))).to_dict()

    assert [shown["command"], shown["models"]["fallback"]] == ["/events link", ["gemini-2.5-pro", "claude-4.5"]]


async def test_case_k_final_is_the_number_of_documents(engine):
    """What is asked for is clamped to 5-10; what is told is how many documents there are."""
    asked = {"k=3": 5, "k=8": 8, "k_final=99": 10, "": 6}
    built = {args: await engine.build_command(typed("/ask", f"topic=AI {args}")) for args in asked}

    assert asked == {args: each.params.k_final for args, each in built.items()}
    assert all(each.retrieval.k_final == len(each.retrieval.docs) for each in built.values())
    assert list(asked.values()) == [each.retrieval.k_final for each in built.values()]


async def test_case_an_invalid_command(engine):
    """A command that does not exist is refused for good, with an id and the caller's version."""
    with pytest.raises(CommandRefused) as refused:
        await engine.build_command(typed("/invalid", "topic=AI"))

    told = refused.value.to_dict()
    assert ["VALIDATION_FAILED", False] == [told["error"]["code"], told["error"]["retryable"]]
    assert told["meta"]["correlation_id"].startswith("ctx-error-")


@pytest.mark.parametrize(
    ("args", "steps", "found"),
    [
        ("window=24h topic=dam", ["expanded window to 3d", "expanded window to 1w"], ["dam"]),
        ("window=1d topic=dam", ["expanded window to 3d", "expanded window to 1w"], ["dam"]),
        ("window=1y lang=en topic=наводнение", ["relaxed lang to auto"], ["flood"]),
        ("window=1y lang=en sources=other.net topic=dam", ["relaxed lang to auto, dropped sources"], ["dam"]),
    ],
)
async def test_recovery_finds_it_on_the_right_rung(engine, args, steps, found):
    """Only an old article matches; only one in the other language; only one of another source."""
    built = await engine.build_command(typed("/ask", args))

    assert found == [each.article_id for each in built.retrieval.docs]
    assert steps == [step.done for step in built.recovery if step.found or step.rung == "window"][: len(steps)]
    assert any(each.source == "recovery" for each in built.degradations)


async def test_a_copy_in_a_wider_window_is_the_same_document(engine):
    """Widening brings other stories, and lists a copy of one it has instead of giving it a place."""
    ship = "A ship of the Vellmar line ran aground near the old lighthouse, and its crew was taken off by a ferry."
    told = [replace(article(f"ship{at}", ship, hours=hours), text=ship) for at, hours in enumerate((2, 9, 20))]
    await engine.news.add(engine.scope, told, now=NOON)
    built = await engine.build_command(typed("/ask", "window=6h topic=lighthouse"))

    assert ["ship0"] == [each.article_id for each in built.retrieval.docs]
    assert [0] * 5 == [step.found for step in built.recovery]


@pytest.mark.parametrize(
    "args",
    ["", "latest news", "последние новости", "what happened today?", "query='что нового'"],
)
async def test_without_a_subject_the_newest_are_listed(engine, args):
    """The specification searches for "latest news"; what is meant are the newest articles of the window."""
    built = await engine.build_command({"raw_command": "/ask", "args": args})

    assert ["ai0", "ai1", "flood", "ml0", "ai2", "ai3"] == [each.article_id for each in built.retrieval.docs]
    assert () == built.recovery


@pytest.mark.parametrize(
    ("flag", "missing"),
    [
        ("auto_expand_window", "expanded window"),
        ("relax_filters_on_empty", "relaxed lang"),
        ("fallback_rerank_false_on_empty", "disabled rerank"),
        ("enable_rerank", "disabled rerank"),
    ],
)
async def test_each_step_has_its_flag(engine, flag, missing):
    """A step whose flag is off is not taken; with reranking off there is nothing to disable."""
    with pytest.raises(NothingFound) as nothing:
        await engine.build_command(typed("/ask", "topic=zeppelins", **{flag: False}))

    assert missing not in nothing.value.tech


def test_models_are_routed_as_documented():
    """Each command has its model and its fallbacks."""
    table = {
        "/ask --depth=deep": "gpt-5 claude-4.5 gemini-2.5-pro",
        "/events link": "gpt-5 gemini-2.5-pro claude-4.5",
        "/graph query": "claude-4.5 gpt-5 gemini-2.5-pro",
        "/synthesize": "gpt-5 claude-4.5",
        "/memory suggest": "gemini-2.5-pro gpt-5",
        "/memory store": "gemini-2.5-pro gpt-5",
        "/memory recall": "gemini-2.5-pro gpt-5",
    }
    routed = {command.value: select_models(command) for command in Command}

    assert table == {name: " ".join([each.primary, *each.fallback]) for name, each in routed.items()}


CASES = [
    typed("/ask --depth=deep", "window=24h lang=en topic=AI k=8"),
    typed("/events", "topic=AI"),
    typed("/graph query", 'query="machine learning trends" window=3d'),
    typed("/memory recall", "query=AI breakthroughs window=1w"),
    typed("/ask --depth=deep", "window=6h topic=storms"),
    typed("/ask", "topic=AI k=8"),
    typed("/invalid", "topic=AI"),
]


async def _answers(settings):
    """What the library answers to every case."""
    async with open_store(settings) as engine:
        await engine.news.add(engine.scope, NEWS, now=NOON)
        found = []
        for raw in CASES:
            try:
                found.append(encode_json((await engine.build_command(raw, now=NOON)).to_dict()))
            except CommandError as failure:
                found.append(encode_json(failure.to_dict()))
        return found


def test_the_command_line_reproduces_every_case(new_folder):
    """`build command --json` prints, byte for byte, what the library gives for the same clock."""
    home = new_folder()
    expected = asyncio.run(_answers(Settings(home=home)))
    words = ["build", "command", "--json", "--home", str(home), "--now", NOON.isoformat()]
    shown = [CliRunner().invoke(app, words, input=json.dumps(raw)).stdout_bytes.strip() for raw in CASES]

    assert expected == shown
