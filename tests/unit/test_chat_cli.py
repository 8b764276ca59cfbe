"""`contexture chat`: one message, a pipe, a conversation, and a running service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import contexture
from contexture.cli import chat as chatting
from contexture.cli.chat import TerminalChat
from contexture.cli.main import app
from contexture.errors import SourceUnavailable


@pytest.fixture(scope="module")
def home(lasting_folder: Callable[[], Path]) -> Path:
    """A store for all tests."""
    return lasting_folder()


def run(home: Path, *words: str, given: str | None = None):
    """What a command line answers."""
    return CliRunner().invoke(app, ["chat", "--home", str(home), *words], input=given)


def test_one_message_has_one_answer(home: Path) -> None:
    """The answer is on standard output, how to go on beside it, and a later message remembers."""
    first = run(home, "The boat is called Albatross.")
    second = run(home, "What is the boat called?")

    assert (0, 0) == (first.exit_code, second.exit_code)
    assert "contexture chat --session " in first.stderr
    assert second.stdout.startswith("The boat is called Albatross. [")


def test_json_is_one_document(home: Path) -> None:
    """The result is what the route answers, in the session that was named."""
    told = json.loads(run(home, "Hello", "--session", "mine", "--json").stdout)

    assert ("mine", "extractive") == (told["session_id"], told["model"])
    assert {"reply", "build_id", "citations", "degradations", "usage", "events"} < set(told)


def test_a_message_can_be_piped_in(home: Path) -> None:
    """What is on standard input is the message."""
    assert 0 == run(home, given="The quay is in the north.\n").exit_code
    assert "The quay is in the north." in run(home, given="Where is the quay?").stdout


@pytest.mark.parametrize(
    ("words", "given", "code", "told"),
    [
        (("--json",), "", 2, "empty"),
        (("",), None, 2, "empty"),
        (("--model", "nothing", "Hello"), None, 2, "no chat model is called"),
        (("--session", "s" * 300, "Hello"), None, 2, "session_id"),
    ],
)
def test_what_cannot_be_answered_is_refused(home: Path, words, given, code: int, told: str) -> None:
    """Each with a sentence and the exit code of its kind."""
    result = run(home, *words, given=given)

    assert code == result.exit_code
    assert told in result.output


def test_json_wants_one_message(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation has no single document."""
    monkeypatch.setattr(chatting, "_read_piped", lambda: None)

    assert (2, True) == ((found := run(home, "--json")).exit_code, "--json needs one message" in found.stdout)


class Scripted:
    """A partner that answers from a script; an exception in it is raised after the first piece."""

    def __init__(self, *answers: str | BaseException) -> None:
        self.answers = list(answers)
        self.heard: list[tuple[str, str]] = []

    def send(self, message: str, session: str) -> Iterator[tuple[str, dict]]:
        """The next answer."""
        self.heard.append((message, session))
        answer = self.answers.pop(0)
        yield "context", {"session_id": session, "build_id": f"ctx-{len(self.heard)}", "degradations": []}
        if isinstance(answer, BaseException):
            yield "delta", {"text": "well "}
            raise answer
        for word in answer.split():
            yield "delta", {"text": f"{word} "}
        yield "done", {"degradations": [{"source": "memory", "reason": "down"}]}

    def explain(self, build_id: str) -> dict:
        """An empty ledger of this build."""
        return {"build_id": build_id, "ledger": [], "degradations": [{"source": build_id, "reason": "asked"}]}


def test_a_real_conversation_explains_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/why` shows the memory that the last answer was built from."""
    typed = iter(["The lighthouse is red.", "What colour is the lighthouse?", "/why", "/exit"])
    monkeypatch.setattr(chatting, "_read_piped", lambda: None)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    result = run(home)

    assert 0 == result.exit_code
    assert "The lighthouse is red." in result.stdout
    assert "mem-" in result.stdout


def test_what_was_said_about_something_is_forgotten_after_a_confirmation(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview, a question, a receipt; without a yes nothing is removed."""
    lines = ["My van is parked behind the library.", "forget what I said about my van.", "n"]
    lines += ["Where is my van parked?", "/forget my van", "y", "Where is my van parked?", "/exit"]
    typed = iter(lines)
    monkeypatch.setattr(chatting, "_read_piped", lambda: None)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    out = run(home).stdout
    before, _, after = out.partition("nothing was removed")

    assert "My van is parked behind the library." in before
    assert "My van is parked behind the library." in after.split("memories: 1")[0]
    assert "No earlier message mentions this" in after
    assert "library" not in after.rpartition("memories: 1")[2]


def test_whoever_stops_listening_stops_the_answer(home: Path) -> None:
    """Without an event loop, closing the steps keeps what was shown as aborted."""
    with contexture.open_sync(home) as ctx:
        steps = ctx.chat(contexture.ChatRequest(message="Hello there", session_id="left"))
        next(steps)
        steps.close()
        stored = ctx.engine.sessions.list_events(ctx.scope, "left")
        found = asyncio.run_coroutine_threadsafe(stored, ctx.loop).result()

    assert ["user", "assistant"] == [event.message["role"] for event in found]
    assert found[1].metadata["status"] in {"aborted", "complete"}  # it may have been faster than we


def converse(monkeypatch: pytest.MonkeyPatch, partner: Scripted, *lines: str | BaseException) -> None:
    """Type these lines, and then end the input."""
    typed = iter([*lines, EOFError()])

    def type_one(_: str) -> str:
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", type_one)
    TerminalChat(partner, "s-1").run()


def test_a_conversation_answers_line_by_line(monkeypatch, capsys) -> None:
    """Each line goes to the same session, blank ones go nowhere, and losses are told beside the answer."""
    partner = Scripted("good day", "well enough")
    converse(monkeypatch, partner, "Hello", "  ", "How are you?")
    out, err = capsys.readouterr()

    assert [("Hello", "s-1"), ("How are you?", "s-1")] == partner.heard
    assert "good day \nwell enough \n" == out
    assert "degraded: memory: down" in err


def test_commands_are_not_sent(monkeypatch, capsys) -> None:
    """`/why` shows the ledger of the last build, `/session` the session, others are refused, `/exit` ends it."""
    partner = Scripted("yes")
    converse(monkeypatch, partner, "/why", "Hello", "/why", "/session", "/help", "/dance", "/exit", "never sent")
    out = capsys.readouterr().out

    assert [("Hello", "s-1")] == partner.heard
    for told in ("there is no answer yet", "degraded: ctx-1: asked", "s-1\n", "unknown command /dance"):
        assert told in out


@pytest.mark.parametrize("interruption", [SourceUnavailable("the vendor is down"), KeyboardInterrupt()])
def test_a_conversation_outlives_an_answer_that_fails(monkeypatch, capsys, interruption) -> None:
    """An error is told, and so is an answer that was broken off; then the next line is answered."""
    converse(monkeypatch, Scripted(interruption, "back again"), "Hello", "Still there?")
    out, err = capsys.readouterr()

    assert "back again" in out
    assert ("the vendor is down" in err) or ("stopped" in err)


def test_breaking_off_at_the_prompt_ends_it(monkeypatch, capsys) -> None:
    """Ctrl-C where nothing is under way leaves quietly."""
    partner = Scripted("yes")
    converse(monkeypatch, partner, KeyboardInterrupt(), "never sent")

    assert [] == partner.heard


def test_what_is_said_cannot_steer_the_terminal(capsys) -> None:
    """Escape sequences of a model are not obeyed."""
    TerminalChat(Scripted("\x1b[2Jgone"), "s").answer("Hello")

    assert "\x1b" not in capsys.readouterr().out
