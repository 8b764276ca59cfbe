"""Who is told about builds and model calls, from settings."""

from __future__ import annotations

from contexture.adapters.llm.traced import TracedModel
from contexture.adapters.spans.silent import SilentSpans
from contexture.config import Settings
from contexture.ports import ChatModel, Spans


def spans(settings: Settings) -> Spans:
    """OpenTelemetry when it is switched on; else nobody."""
    if not settings.otel:
        return SilentSpans()
    from contexture.adapters.spans.otel import OtelSpans

    return OtelSpans()


def traced(name: str, model: ChatModel, settings: Settings) -> ChatModel:
    """The model of this name, each of its calls a span where those are switched on."""
    if not settings.otel:
        return model
    return TracedModel(model, spans(settings), provider=_provider(name))


def _provider(name: str) -> str:
    """Who runs a model: for a hosted one the vendor before the slash, else the kind of model."""
    kind, _, rest = name.partition(":")
    return rest.partition("/")[0] if "/" in rest else kind or "extractive"
