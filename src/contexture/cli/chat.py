"""`contexture chat`: a conversation in the terminal, or one message and its answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TextIO, cast
from urllib.parse import quote
from uuid import uuid4

import typer

from contexture.cli._client import RemoteService, find_service, parse_degradations, parse_ledger, to_wire_json
from contexture.cli._common import STDIN, Common, decode_text, read_bytes, register_command
from contexture.cli._output import console, print_error, print_json, print_line, print_note, replace_control_chars
from contexture.errors import ContextError, InvalidRequest

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

    def forget(self, subject: str, *, preview: bool) -> dict[str, Any]:
        """Forget what the user said about a subject, or only say what that would be; returns the receipt."""
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
            for name, data in map(chat_step_event, steps):
                yield name, to_wire_json(data)
        finally:
            steps.close()

    def explain(self, build_id: str) -> dict[str, Any]:
        """Return the ledger of a build."""
        from contexture.service.wire.builds import ledger_object

        return to_wire_json(ledger_object(build_id, *self.engine.load_build(build_id)))

    def forget(self, subject: str, *, preview: bool) -> dict[str, Any]:
        """Forget a subject, if the policy allows it."""
        from contexture.answer.permissions import require_permission
        from contexture.erasure.request import ForgetRequest

        request, inner = ForgetRequest(matching=subject, preview=preview), self.engine.engine
        check = require_permission(inner.policy, inner.scope, "forget", request.describe())
        asyncio.run_coroutine_threadsafe(check, self.engine.loop).result()
        return to_wire_json(self.engine.forget(request).json_form())


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

    def forget(self, subject: str, *, preview: bool) -> dict[str, Any]:
        """Forget a subject."""
        return self.service.request("POST", "/v1/forget", {"matching": subject, "preview": preview})


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


PROMPT = "> "
CONFIRM = "Forget this for good? [y/N] "
HELP = (
    "/why shows the ledger of the last answer, /session the session id, "
    "/forget SUBJECT forgets what you said about it; /exit ends the chat"
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "chat", with_identity=True)(chat)


def chat(
    common: Common,
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="One message; without it, a conversation starts.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Continue this session instead of a new one.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="Model to use, such as `local`.")] = None,
) -> None:
    """Chat with a model that has a memory.

    With MESSAGE, or with a message on standard input, one answer is printed. In a conversation, `/why` explains the
    last answer, `/session` shows the session id and `/exit` ends it. `/forget SUBJECT`, or "forget what I said about
    SUBJECT", shows what would be forgotten, asks for confirmation, and forgets it.
    """
    piped = _read_piped() if message is None else None
    said = message if message is not None else piped
    if said is None and common.as_json:
        raise InvalidRequest("--json needs one message: give MESSAGE, or pipe one in")
    with open_chat_client(common.settings(), model) as other:
        talk = TerminalChat(other, session or uuid4().hex)
        if said is None:
            talk.run()
        else:
            talk.answer(said, as_json=common.as_json)
            if session is None and not common.as_json:
                print_note(f"continue: contexture chat --session {talk.session} {common.as_options()}".rstrip())


_CONFIRMATIONS = frozenset(("y", "yes", "д", "да"))


@dataclass(slots=True)
class TerminalChat:
    """A conversation on the terminal."""

    client: ChatClient
    session: str
    last_build: str = ""
    commands: dict[str, Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        self.commands = {
            "/why": self.explain_last,
            "/session": lambda: print_line(self.session),
            "/help": lambda: print_line(HELP),
        }

    def run(self) -> None:
        """Read lines and answer them until the end of input or `/exit`."""
        print_note(f"session {self.session}; {HELP}")
        while (line := _read_line()) not in (None, "/exit", "/quit"):
            if line:
                self._handle_line(line)

    def answer(self, message: str, *, as_json: bool = False) -> None:
        """Print the answer to a message as it arrives, or its result as one JSON document."""
        result: dict[str, Any] = {}
        for name, data in self.client.send(message, self.session):
            if name == "context":
                self.last_build = data["build_id"]
            elif name == "delta" and not as_json:
                typer.echo(replace_control_chars(data["text"]), nl=False)
                sys.stdout.flush()
            elif name == "done":
                result = data
        if as_json:
            print_json(result)
        else:
            typer.echo()
            for each in result.get("citations", ()):
                if each["cited"] and each["collection"] != "memories":
                    print_note(f"[{each['number']}] {each['label']}: {each['collection']}/{each['memory_id']}")
            _print_degradations(result)

    def explain_last(self) -> None:
        """Show the ledger of the last build."""
        if not self.last_build:
            print_line("there is no answer yet")
            return
        from contexture.cli._tables import ledger_view

        console().print(ledger_view(parse_ledger(self.client.explain(self.last_build))))

    def forget(self, subject: str) -> None:
        """Show what would be forgotten with a subject, and forget it if the user confirms."""
        from contexture.cli.forget import print_receipt

        found = self.client.forget(subject, preview=True)
        print_receipt(found, hint="")
        if not found["removed"]:
            return
        if (_read_line(CONFIRM) or "").lower() in _CONFIRMATIONS:
            print_receipt(self.client.forget(subject, preview=False))
        else:
            print_line("nothing was removed")

    def _handle_line(self, line: str) -> None:
        """Handle one line; an error is printed, and the conversation continues."""
        from contexture.text.statements import find_subject_to_forget

        command, _, rest = line.partition(" ")
        subject = rest.strip() if command == "/forget" else find_subject_to_forget(line)
        try:
            if subject:
                self.forget(subject)
            elif line.startswith("/"):
                self.commands.get(line, lambda: print_line(f"unknown command {line}; {HELP}"))()
            else:
                self.answer(line)
        except ContextError as failure:
            print_error(failure, as_json=False)
        except KeyboardInterrupt:
            print_note("stopped")


def _read_line(prompt: str = PROMPT) -> str | None:
    """Return the typed line without surrounding white space; None at the end of input, or on an interrupt."""
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        return None


def _read_piped() -> str | None:
    """Return the text piped to standard input; None on a terminal."""
    stream = cast("TextIO | None", sys.stdin)  # None if a shell has closed it
    if stream is None or stream.isatty():
        return None
    return decode_text(read_bytes(STDIN), "standard input").strip()


def _print_degradations(result: dict[str, Any]) -> None:
    from contexture.cli._tables import degradation_lines

    for line in degradation_lines(parse_degradations(result)) if result else ():
        console(err=True).print(line)
