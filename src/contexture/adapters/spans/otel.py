"""Spans for OpenTelemetry, named as its conventions for generative AI name them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version

from contexture.ports import Note
from contexture.types import Scalar

try:
    from opentelemetry import trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as missing:
    raise ImportError('OtelSpans needs opentelemetry: pip install "contexture[otel]"') from missing

CHAT = "chat"
"""The operation that calls a model; the others stay in this process."""

STREAM = "gen_ai.request.stream"


class OtelSpans:
    """Implements `Spans` over the process's tracer provider, or another one.

    A span that ends in an error carries its class as `error.type` and no message, which might quote what was asked.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("contexture", version("contexture"), provider)

    @contextmanager
    def span(self, operation: str, target: str, told: Mapping[str, Scalar]) -> Generator[Note]:
        """A span called `OPERATION TARGET`; what is noted while it lasts becomes its attributes.

        One that streams is no parent of others: its consumer may end it from another task, and in another context.
        """
        span = self._tracer.start_span(
            f"{operation} {target}",
            kind=SpanKind.CLIENT if operation == CHAT else SpanKind.INTERNAL,
            attributes={"gen_ai.operation.name": operation, **told},
        )
        current = trace.use_span(span, record_exception=False, set_status_on_exception=False)
        around = nullcontext() if told.get(STREAM) else current
        with ExitStack() as ending:
            ending.push(partial(_end, span))
            with around:
                yield span.set_attributes


def _end(span: Span, kind: type[BaseException] | None, *_: object) -> None:
    """End a span; whoever listened and had enough is no failure."""
    if kind is not None and kind is not GeneratorExit:
        span.set_attribute("error.type", kind.__qualname__)
        span.set_status(Status(StatusCode.ERROR))
    span.end()
