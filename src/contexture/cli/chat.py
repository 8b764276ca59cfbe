"""`contexture chat`: a conversation in the terminal, or one message and its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TextIO, cast
from uuid import uuid4

import typer

from contexture.cli.answers import degradations_of, ledger_of
from contexture.cli.common import Common, command
from contexture.cli.inputs import STDIN, decoded, read_bytes
from contexture.cli.output import console, emit, fail, note, plain, say
from contexture.cli.talking import Partner, partner
from contexture.errors import ContextError, InvalidRequest

PROMPT = "> "
HELP = "/why says what the last answer was built from, /session which session this is, /exit ends it"


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "chat", acting=True)(chat)


def chat(
    common: Common,
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="One message; without it a conversation begins.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Go on with this session instead of a new one.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Model that answers, such as `local`.")
    ] = None,
) -> None:
    """Talk with a model that remembers.

    With MESSAGE, or with a message on standard input, one answer is printed. In a conversation `/why` explains the
    last answer, `/session` names the session and `/exit` ends it.
    """
    piped = _piped() if message is None else None
    said = message if message is not None else piped
    if said is None and common.as_json:
        raise InvalidRequest("--json answers one message: give MESSAGE, or pipe one in")
    with partner(common.settings(), model) as other:
        talk = Talk(other, session or uuid4().hex)
        if said is None:
            talk.converse()
        else:
            talk.answer(said, as_json=common.as_json)
            if session is None and not common.as_json:
                note(f"go on with it: contexture chat --session {talk.session} {common.retyped()}".rstrip())


@dataclass(slots=True)
class Talk:
    """A conversation on the terminal."""

    partner: Partner
    session: str
    last_build: str = ""
    commands: dict[str, Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        self.commands = {"/why": self.why, "/session": lambda: say(self.session), "/help": lambda: say(HELP)}

    def converse(self) -> None:
        """Read lines and answer them until the end of input or `/exit`."""
        note(f"session {self.session}; {HELP}")
        while (line := _line()) not in (None, "/exit", "/quit"):
            if line:
                self._turn(line)

    def answer(self, message: str, *, as_json: bool = False) -> None:
        """Print the answer to a message as it comes, or its result as one document."""
        result: dict[str, Any] = {}
        for name, told in self.partner.say(message, self.session):
            if name == "context":
                self.last_build = told["build_id"]
            elif name == "delta" and not as_json:
                typer.echo(plain(told["text"]), nl=False)
                sys.stdout.flush()
            elif name == "done":
                result = told
        if as_json:
            emit(result)
        else:
            typer.echo()
            _tell_losses(result)

    def why(self) -> None:
        """Show the ledger of the last build."""
        if not self.last_build:
            say("nothing was answered yet")
            return
        from contexture.cli.tables import ledger_view

        console().print(ledger_view(ledger_of(self.partner.why(self.last_build))))

    def _turn(self, line: str) -> None:
        """One line; what goes wrong is told, and the conversation goes on."""
        try:
            if line.startswith("/"):
                self.commands.get(line, lambda: say(f"there is no {line}; {HELP}"))()
            else:
                self.answer(line)
        except ContextError as failure:
            fail(failure, as_json=False)
        except KeyboardInterrupt:
            note("stopped")


def _line() -> str | None:
    """What was typed, without white space around it; None at the end of input, or when it is broken off."""
    try:
        return input(PROMPT).strip()
    except (EOFError, KeyboardInterrupt):
        return None


def _piped() -> str | None:
    """What was piped in; None on a terminal."""
    stream = cast("TextIO | None", sys.stdin)  # None where a shell has closed it
    if stream is None or stream.isatty():
        return None
    return decoded(read_bytes(STDIN), "standard input").strip()


def _tell_losses(result: dict[str, Any]) -> None:
    from contexture.cli.tables import losses

    for line in losses(degradations_of(result)) if result else ():
        console(err=True).print(line)
