"""`contexture chat`: a conversation in the terminal, or one message and its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TextIO, cast
from uuid import uuid4

import typer

from contexture.cli._chat_client import ChatClient, open_chat_client
from contexture.cli._client import parse_degradations, parse_ledger
from contexture.cli._common import STDIN, Common, decode_text, read_bytes, register_command
from contexture.cli._output import console, print_error, print_json, print_line, print_note, replace_control_chars
from contexture.errors import ContextError, InvalidRequest

PROMPT = "> "
HELP = "/why shows the ledger of the last answer, /session the session id; /exit ends the chat"


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
    last answer, `/session` shows the session id and `/exit` ends it.
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
        for name, told in self.client.send(message, self.session):
            if name == "context":
                self.last_build = told["build_id"]
            elif name == "delta" and not as_json:
                typer.echo(replace_control_chars(told["text"]), nl=False)
                sys.stdout.flush()
            elif name == "done":
                result = told
        if as_json:
            print_json(result)
        else:
            typer.echo()
            _print_degradations(result)

    def explain_last(self) -> None:
        """Show the ledger of the last build."""
        if not self.last_build:
            print_line("there is no answer yet")
            return
        from contexture.cli._tables import ledger_view

        console().print(ledger_view(parse_ledger(self.client.explain(self.last_build))))

    def _handle_line(self, line: str) -> None:
        """Handle one line; an error is printed, and the conversation continues."""
        try:
            if line.startswith("/"):
                self.commands.get(line, lambda: print_line(f"unknown command {line}; {HELP}"))()
            else:
                self.answer(line)
        except ContextError as failure:
            print_error(failure, as_json=False)
        except KeyboardInterrupt:
            print_note("stopped")


def _read_line() -> str | None:
    """Return the typed line without surrounding white space; None at the end of input, or on an interrupt."""
    try:
        return input(PROMPT).strip()
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
