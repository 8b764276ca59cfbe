"""Whom `contexture chat` talks to: the engine in this process, or a running service; both answer alike."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from contexture.cli.answers import as_sent
from contexture.cli.remote import Door, remote

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.sync import SyncContexture

Steps = Generator[tuple[str, dict[str, Any]]]


class Partner(Protocol):
    """Answers messages and remembers why."""

    def say(self, message: str, session: str) -> Steps:
        """The events of an answer, by name; close it to stop the answer."""
        ...

    def why(self, build_id: str) -> dict[str, Any]:
        """What was asked in a build, and how every candidate ended."""
        ...


@dataclass(frozen=True, slots=True)
class Here:
    """The engine in this process."""

    engine: SyncContexture

    def say(self, message: str, session: str) -> Steps:
        """The events of an answer, by name."""
        from contexture.answer.exchange import ChatRequest
        from contexture.service.wire.chat import step_object

        steps = self.engine.chat(ChatRequest(message=message, session_id=session))
        try:
            for name, told in map(step_object, steps):
                yield name, as_sent(told)
        finally:
            steps.close()

    def why(self, build_id: str) -> dict[str, Any]:
        """The ledger of a build."""
        from contexture.service.shapes import ledger_object

        return as_sent(ledger_object(build_id, *self.engine.kept(build_id)))


@dataclass(frozen=True, slots=True)
class There:
    """A running service; `model` is asked for by name where one was named."""

    door: Door
    model: str | None

    def say(self, message: str, session: str) -> Steps:
        """The events of an answer, by name."""
        named = {} if self.model is None else {"model": self.model}
        body = {"message": message, "session_id": session, "stream": True, **named}
        with self.door.events("/v1/chat", body) as events:
            yield from events

    def why(self, build_id: str) -> dict[str, Any]:
        """The ledger of a build."""
        return self.door.ask("GET", f"/v1/builds/{quote(build_id, safe='')}")


@contextmanager
def partner(settings: Settings, model: str | None) -> Generator[Partner]:
    """The service that holds the store, else an engine that is closed afterwards."""
    door = remote(settings)
    if door is not None:
        yield There(door, model)
        return
    from contexture.cli.logs import to_stderr
    from contexture.sync import open_sync

    to_stderr()
    chosen = settings if model is None else settings.model_copy(update={"chat_model": model})
    with open_sync(chosen) as engine:
        yield Here(engine)
