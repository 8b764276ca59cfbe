"""The retrievers of LangChain, LlamaIndex and Haystack, each in the hands of its own library."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading

import pytest
from haystack import Pipeline
from haystack.components.builders import PromptBuilder
from langchain_core.runnables import RunnableLambda
from llama_index.core.schema import MetadataMode

from contexture import Equals, Scope, SyncContexture
from contexture.errors import InvalidRequest
from contexture.integrations import haystack, langchain, llamaindex
from contexture.integrations._lookup import Lookup

BORIS = Scope(tenant="acme", user="boris")


@pytest.fixture
async def waiting(engine):
    """The same engine for code that cannot await, called from another thread."""
    return SyncContexture(engine, asyncio.get_running_loop())


async def apart(work):
    """What `work` returns in a thread of its own, as code without an event loop would run it."""
    return await asyncio.to_thread(work)


async def test_langchain_gets_what_the_user_may_see(engine):
    """Documents come redacted and best first, with what leads back to their records."""
    chain = langchain.LangChainRetriever(engine=engine) | RunnableLambda(lambda found: found)
    documents = await chain.ainvoke("pump")
    first = next(each for each in documents if each.id == "pump#00000")

    assert {"pump#00000", "valve#00000"} == {each.id for each in documents}
    assert first.page_content == "The pump leaks. Mail <EMAIL_1> about it."
    assert first.metadata["citation"]["record_id"] == "pump"
    assert [each.metadata["score"] for each in documents] == sorted(
        (each.metadata["score"] for each in documents), reverse=True
    )


async def test_langchain_takes_a_scope_a_filter_and_a_number(engine):
    """Who asks, what to leave out and how many to return are the retriever's."""
    retriever = langchain.LangChainRetriever(engine=engine, scope=BORIS, where=Equals("kind", "document"), k=1)

    assert ["pump#00000"] == [each.id for each in await retriever.ainvoke("pump")]


async def test_langchain_answers_code_without_an_event_loop(waiting):
    """`invoke` waits for the engine."""
    retriever = langchain.LangChainRetriever(engine=waiting, k=1)

    assert len(await apart(lambda: retriever.invoke("pump"))) == 1


async def test_llamaindex_gets_nodes_whose_text_alone_is_read(engine):
    """Metadata stays out of what a model reads."""
    nodes = await llamaindex.LlamaIndexRetriever(engine, scope=BORIS).aretrieve("pump")

    assert ["The pump leaks. Mail <EMAIL_1> about it."] == [
        each.node.get_content(metadata_mode=MetadataMode.LLM) for each in nodes
    ]
    assert nodes[0].score == nodes[0].node.metadata["score"]


async def test_llamaindex_answers_code_without_an_event_loop(waiting):
    """`retrieve` waits for the engine."""
    retriever = llamaindex.LlamaIndexRetriever(waiting)

    assert {"pump#00000", "valve#00000"} == {
        each.node.node_id for each in await apart(lambda: retriever.retrieve("pump"))
    }


async def test_haystack_feeds_the_documents_to_what_comes_next(waiting):
    """In a pipeline the documents reach the prompt."""
    pipeline = Pipeline()
    pipeline.add_component("retriever", haystack.HaystackRetriever(waiting, scope=BORIS))
    template = "{% for each in documents %}{{ each.content }}{% endfor %}"
    pipeline.add_component("prompt", PromptBuilder(template, required_variables=["documents"]))
    pipeline.connect("retriever.documents", "prompt.documents")
    found = await apart(lambda: pipeline.run({"retriever": {"query": "pump"}}))

    assert found["prompt"]["prompt"] == "The pump leaks. Mail <EMAIL_1> about it."


async def test_haystack_awaits_an_engine_with_an_event_loop(engine):
    """`run_async` gives documents with their scores."""
    found = await haystack.HaystackRetriever(engine, top_k=1).run_async("pump")

    assert [found["documents"][0].meta["score"]] == [each.score for each in found["documents"]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda engine: langchain.LangChainRetriever(engine=engine).invoke("pump"),
        lambda engine: llamaindex.LlamaIndexRetriever(engine).retrieve("pump"),
        lambda engine: haystack.HaystackRetriever(engine).run("pump"),
    ],
    ids=["langchain", "llamaindex", "haystack"],
)
async def test_an_engine_that_must_be_awaited_says_so(engine, ask):
    """A call that would block the event loop is refused, with what to do."""
    with pytest.raises(InvalidRequest, match=r"use `contexture\.open_sync`"):
        ask(engine)


async def test_more_passages_than_the_engine_looks_at_are_looked_for(engine):
    """A large `k` widens the search."""
    scope = Scope(tenant="many", user="anna")
    await engine.add([{"id": str(at), "text": f"Pump {at} stands in hall {at}."} for at in range(70)], scope=scope)

    assert len(await Lookup(engine=engine, k=61, scope=scope).run_async("pump")) == 61


def test_no_passages_at_all_cannot_be_asked_for(engine):
    """`k` is at least 1."""
    with pytest.raises(InvalidRequest, match="`k` must be at least 1, not 0"):
        Lookup(engine=engine, k=0)


async def test_an_engine_without_an_event_loop_can_be_awaited_too(waiting):
    """Asynchronous code may use the engine that another thread runs."""
    assert len(await langchain.LangChainRetriever(engine=waiting, k=1).ainvoke("pump")) == 1


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("contexture.integrations.langchain", "langchain_core.callbacks", "langchain"),
        ("contexture.integrations.llamaindex", "llama_index.core.bridge.pydantic", "llamaindex"),
        ("contexture.integrations.haystack", "haystack", "haystack"),
        ("contexture.adapters.spans.otel", "opentelemetry", "otel"),
        ("contexture.mcp.server", "mcp_types", "mcp"),
    ],
)
def test_a_missing_library_is_named_with_what_to_type(module, library, extra, monkeypatch):
    """Without its extra, a part says in one sentence how to get it."""
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf'pip install "contexture-ai\[{extra}\]"'):
        importlib.import_module(module)


def test_the_earlier_names_of_the_retrievers_still_work():
    """Code written for them needs no change."""
    assert langchain.ContextureRetriever is langchain.LangChainRetriever
    assert llamaindex.ContextureRetriever is llamaindex.LlamaIndexRetriever
    assert haystack.ContextureRetriever is haystack.HaystackRetriever


def test_nothing_is_reported_to_anyone():
    """The libraries' own telemetry is off, and no thread of it runs."""
    from haystack.telemetry._telemetry import telemetry

    assert telemetry is None
    assert not [thread for thread in threading.enumerate() if "posthog" in thread.name.lower()]
