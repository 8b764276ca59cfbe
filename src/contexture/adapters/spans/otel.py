"""OpenTelemetry spans, named after its semantic conventions for generative AI."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version

from contexture.ports import SetAttributes
from contexture.types import Scalar

try:
    from opentelemetry import trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as missing:
    raise ImportError('OtelSpans needs opentelemetry: pip install "contexture-ai[otel]"') from missing

CHAT_OPERATION = "chat"
"""Operation that calls a model and gets a client span; others are internal."""

STREAM_ATTRIBUTE = "gen_ai.request.stream"


class OtelTracer:
    """Implements `Tracer` over the process's OpenTelemetry tracer provider, or another one.

    A span that ends in an error has the exception class as `error.type`, and no message, which might quote the prompt.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("contexture", version("contexture-ai"), provider)

    @contextmanager
    def span(self, operation: str, target: str, attributes: Mapping[str, Scalar]) -> Generator[SetAttributes]:
        """Start a span named `OPERATION TARGET`; yields a function that sets its attributes.

        A streaming span is never the parent of others: its consumer may end it in another task and context.
        """
        span = self._tracer.start_span(
            f"{operation} {target}",
            kind=SpanKind.CLIENT if operation == CHAT_OPERATION else SpanKind.INTERNAL,
            attributes={"gen_ai.operation.name": operation, **attributes},
        )
        current = trace.use_span(span, record_exception=False, set_status_on_exception=False)
        around = nullcontext() if attributes.get(STREAM_ATTRIBUTE) else current
        with ExitStack() as ending:
            ending.push(partial(_end_span, span))
            with around:
                yield span.set_attributes


def _end_span(span: Span, kind: type[BaseException] | None, *_: object) -> None:
    """End a span; a consumer that stops listening is not an error."""
    if kind is not None and kind is not GeneratorExit:
        span.set_attribute("error.type", kind.__qualname__)
        span.set_status(Status(StatusCode.ERROR))
    span.end()
