"""Builds and model calls as OpenTelemetry spans."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from contexture import Settings
from contexture.adapters.llm.extractive import ExtractiveModel
from contexture.adapters.spans.otel import OtelTracer
from contexture.adapters.spans.tracing import NoopTracer, TracedModel
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.testing.models import ChatModelConformance
from contexture.types import PUBLIC, Record
from contexture.wiring import chat_route, command_writer, spans, summarizer, traced_model
from support.service import small_engine

MESSAGES = [{"role": "user", "content": "Where is the secret pump?"}]


class Slow:
    """A model that says two words, or fails between them."""

    name = "litellm:vendor/slow"

    def __init__(self, failure=None):
        self.failure = failure

    async def complete(self, messages, *, max_tokens):
        """Both words at once."""
        return "".join([piece async for piece in self.stream(messages, max_tokens=max_tokens)])

    async def stream(self, messages, *, max_tokens):
        """One word after the other."""
        yield "one "
        if self.failure:
            raise self.failure
        yield "two"


@pytest.fixture
def exporter():
    """Where finished spans end up."""
    return InMemorySpanExporter()


@pytest.fixture
def told(exporter):
    """Spans that go to the exporter."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OtelTracer(provider)


async def test_a_model_call_is_a_span_of_the_conventions(told, exporter):
    """The span says which model was asked for how much, and not what was said."""
    answer = await TracedModel(Slow(), told, provider="vendor").complete(MESSAGES, max_tokens=7)
    (span,) = exporter.get_finished_spans()

    assert answer == "one two"
    assert (span.name, span.kind) == ("chat litellm:vendor/slow", SpanKind.CLIENT)
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vendor",
        "gen_ai.request.model": "litellm:vendor/slow",
        "gen_ai.request.max_tokens": 7,
        "gen_ai.output.type": "text",
    }


async def test_a_stream_is_one_span(told, exporter):
    """The span lasts until the last piece."""
    pieces = []
    async for piece in TracedModel(Slow(), told, provider="vendor").stream(MESSAGES, max_tokens=7):
        assert not exporter.get_finished_spans()
        pieces.append(piece)
    (span,) = exporter.get_finished_spans()

    assert pieces == ["one ", "two"]
    assert span.attributes["gen_ai.request.stream"] is True


async def test_a_stream_that_nobody_wants_any_more_has_not_failed(told, exporter):
    """Closing a stream ends its span without an error."""
    async with aclosing(TracedModel(Slow(), told, provider="vendor").stream(MESSAGES, max_tokens=7)) as pieces:
        await anext(pieces)
    (span,) = exporter.get_finished_spans()

    assert span.status.status_code is StatusCode.UNSET


async def test_a_failure_is_named_without_its_message(told, exporter):
    """A message may quote what was asked, so only the kind of failure is told."""
    model = TracedModel(Slow(SourceUnavailable("the secret pump is down")), told, provider="vendor")
    with pytest.raises(SourceUnavailable):
        await model.complete(MESSAGES, max_tokens=7)
    (span,) = exporter.get_finished_spans()

    assert span.attributes["error.type"] == "SourceUnavailable"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert not span.events


async def test_a_build_is_a_span_that_says_how_it_ended(told, exporter, new_folder):
    """Every kind of build tells how many candidates were kept, shortened and dropped, and nothing of their texts."""
    async with small_engine(Settings(home=new_folder())) as engine:
        engine.spans = told
        await engine.add([Record(id="pump", text="The secret pump leaks.", acl=(PUBLIC,))])
        await engine.build("secret pump")
        await engine.build_turn({"user_message": "secret pump"})
        await engine.build_workspace({"query": "secret pump"})
        await engine.build_research("secret pump")
    found = {span.name: dict(span.attributes) for span in exporter.get_finished_spans()}

    assert ["build_context query", "build_context turn", "build_context workspace", "build_context research"] == [
        *found
    ]
    assert found["build_context query"]["contexture.candidates.kept"] == 1
    assert "secret" not in str(found)


async def test_a_build_that_is_refused_is_told_too(told, exporter, new_folder):
    """The span of a refused build carries the kind of error."""
    async with small_engine(Settings(home=new_folder())) as engine:
        engine.spans = told
        with pytest.raises(InvalidRequest):
            await engine.build("  ")
    (span,) = exporter.get_finished_spans()

    assert span.attributes["error.type"] == "InvalidRequest"


def test_nothing_is_told_unless_it_is_switched_on():
    """By default neither builds nor models are watched."""
    assert isinstance(spans(Settings()), NoopTracer)
    assert summarizer(Settings()) is None
    assert isinstance(chat_route(Settings()).order_models(None)[0], ExtractiveModel)


def test_every_model_is_watched_when_it_is_switched_on():
    """The models of chats and of commands tell of their calls, by the vendor's name."""
    switched = Settings(otel=True, command_llms={"gpt-5": "extractive"}, summary_model="extractive")

    assert isinstance(spans(switched), OtelTracer)
    assert isinstance(chat_route(switched).order_models(None)[0], TracedModel)
    assert isinstance(command_writer(switched).models["gpt-5"], TracedModel)
    assert isinstance(summarizer(switched), TracedModel)
    assert traced_model("litellm:openai/gpt-5", Slow(), switched)._provider == "openai"
    assert traced_model("extractive", Slow(), switched)._provider == "extractive"


class TestTracedModel(ChatModelConformance):
    """A watched model keeps every promise of the port."""

    @pytest.fixture
    def model(self, told):
        """The extractive model, watched."""
        return TracedModel(ExtractiveModel(), told, provider="extractive")


async def test_silence_takes_notes_and_keeps_none():
    """Code that notes facts need not know whether anyone listens."""
    with NoopTracer().span("chat", "x", {}) as note:
        assert note({"a": 1}) is None
