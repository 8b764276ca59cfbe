"""Chat over the engine in this process or over a running service; both yield the same events."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from contexture.cli._client import RemoteService, find_service, to_wire_json

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.sync import SyncContexture


ChatEvents = Generator[tuple[str, dict[str, Any]]]


class ChatClient(Protocol):
    """Sends messages to a session and explains builds."""

    def send(self, message: str, session: str) -> ChatEvents:
        """Yield the named events of an answer; close it to stop the answer."""
        ...

    def explain(self, build_id: str) -> dict[str, Any]:
        """Return the question of a build, and the outcome of every candidate."""
        ...


@dataclass(frozen=True, slots=True)
class EngineChat:
    """Chat over the engine in this process."""

    engine: SyncContexture

    def send(self, message: str, session: str) -> ChatEvents:
        """Yield the named events of an answer."""
        from contexture.answer.chat_types import ChatRequest
        from contexture.service.wire.chat import chat_step_event

        steps = self.engine.chat(ChatRequest(message=message, session_id=session))
        try:
            for name, told in map(chat_step_event, steps):
                yield name, to_wire_json(told)
        finally:
            steps.close()

    def explain(self, build_id: str) -> dict[str, Any]:
        """Return the ledger of a build."""
        from contexture.service.wire.builds import ledger_object

        return to_wire_json(ledger_object(build_id, *self.engine.kept(build_id)))


@dataclass(frozen=True, slots=True)
class ServiceChat:
    """Chat over a running service; `model` is requested by name if one is given."""

    service: RemoteService
    model: str | None

    def send(self, message: str, session: str) -> ChatEvents:
        """Yield the named events of an answer."""
        named = {} if self.model is None else {"model": self.model}
        body = {"message": message, "session_id": session, "stream": True, **named}
        with self.service.stream_events("/v1/chat", body) as events:
            yield from events

    def explain(self, build_id: str) -> dict[str, Any]:
        """Return the ledger of a build."""
        return self.service.request("GET", f"/v1/builds/{quote(build_id, safe='')}")


@contextmanager
def open_chat_client(settings: Settings, model: str | None) -> Generator[ChatClient]:
    """Yield a client of the service that holds the store, or else of an engine that is closed afterwards."""
    service = find_service(settings)
    if service is not None:
        yield ServiceChat(service, model)
        return
    from contexture.cli._output import log_to_stderr
    from contexture.sync import open_sync

    log_to_stderr()
    chosen = settings if model is None else settings.model_copy(update={"chat_model": model})
    with open_sync(chosen) as engine:
        yield EngineChat(engine)
