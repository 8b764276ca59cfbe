"""The engine without an event loop offers the calls of the one with."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contexture
from contexture import Contexture, Record, SyncContexture
from contexture.answer.chat import ProcessMessage
from contexture.answer.commands.execute import ExecuteCommand
from contexture.answer.research import AskResearch
from contexture.blocks.workspace import Workspace
from contexture.capsule import pack_capsule
from contexture.errors import ContextError, InvalidRequest
from contexture.news.store import NewsStore
from contexture.pages.store import PageStore
from contexture.ports import MemoryService
from contexture.sync import SyncBlocks, SyncMemory, SyncNews, SyncPages, SyncWorkspace
from contexture.types import PUBLIC
from contexture.workspace import BlockStore

ANSWERING = {"chat": ProcessMessage.stream, "execute": ExecuteCommand.run, "ask_research": AskResearch.run}
"""Objects of the engine that answer; without an event loop they are calls, and their scope has a default."""


def calls(owner: type) -> dict[str, Callable[..., Any]]:
    """The public methods of a class."""
    return {name: value for name, value in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")}


def test_both_engines_offer_the_same_calls() -> None:
    """Each awaitable call of the engine exists without `await`, with the same parameters and the same result."""
    awaited = {name: call for name, call in calls(Contexture).items() if inspect.iscoroutinefunction(call)}
    blocking = {name: call for name, call in calls(SyncContexture).items() if name != "run"}

    assert set(blocking) == set(awaited) | set(ANSWERING)
    for name, call in awaited.items():
        assert inspect.signature(call) == inspect.signature(blocking[name]), name


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SyncMemory, MemoryService),
        (SyncNews, NewsStore),
        (SyncPages, PageStore),
        (SyncWorkspace, Workspace),
        (SyncBlocks, BlockStore),
    ],
)
def test_stores_take_the_same_parameters_without_an_event_loop(ours: type, theirs: type) -> None:
    """A call of memory, news, pages, workspace and blocks has the signature of the one that is awaited."""
    blocking = {name: call for name, call in calls(ours).items() if name != "run"}

    assert blocking
    for name, call in blocking.items():
        assert inspect.signature(getattr(theirs, name)) == inspect.signature(call), name


@pytest.mark.parametrize("name", sorted(ANSWERING))
def test_calls_that_answer_take_what_the_engines_objects_take(name: str) -> None:
    """`chat`, `execute` and `ask_research` take the parameters of the objects they stand for."""
    ours = list(inspect.signature(getattr(SyncContexture, name)).parameters.values())[1:]
    theirs = list(inspect.signature(ANSWERING[name]).parameters.values())[1:]

    assert [each.kind for each in ours] == [each.kind for each in theirs]
    assert [each.name for each in ours[1:]] == [each.name for each in theirs[1:]]


@pytest.mark.integration
def test_messages_without_a_session_are_one_conversation(new_folder: Callable[[], Path]) -> None:
    """The second text of `chat` continues the session of the first; a named session is another one."""
    with contexture.open_sync(new_folder()) as ctx:
        first, second = (list(ctx.chat(text))[-1] for text in ("The quay is in the north.", "Where is the quay?"))
        other = list(ctx.chat(contexture.ChatRequest(message="Hello", session_id="other")))[-1]

    assert first.session_id == second.session_id != other.session_id


@pytest.mark.integration
def test_an_answer_is_its_steps_or_its_result(new_folder: Callable[[], Path]) -> None:
    """`result` waits for the answer, also after its steps were read; a stopped one has none."""
    with contexture.open_sync(new_folder()) as ctx:
        told = ctx.chat("The quay is in the north.").result()
        steps = ctx.chat("Where is the quay?")
        read = list(steps)
        stopped = ctx.chat("Hello")
        stopped.close()

        assert told.session_id == steps.result().session_id
        assert read[-1] is steps.result()
        with pytest.raises(InvalidRequest, match="stopped"):
            stopped.result()


@pytest.mark.integration
def test_a_store_is_closed_by_with_or_by_close(new_folder: Callable[[], Path]) -> None:
    """A store can be opened again as soon as `close` has returned; a second call does nothing."""
    folder = new_folder()
    ctx = contexture.open_sync(folder)
    ctx.add([Record(id="pump", text="The pump leaks.", acl=(PUBLIC,))])
    ctx.close()
    ctx.close()

    with pytest.raises(InvalidRequest, match="closed"):
        ctx.search("pump")
    with contexture.open_sync(folder) as again:
        assert ["pump"] == [each.record_id for each in again.search("pump").found]


@pytest.mark.integration
def test_a_capsule_a_model_and_a_check_work_without_an_event_loop(new_folder: Callable[[], Path]) -> None:
    """What only the asynchronous engine once offered: `model=`, `capsule` and `verify`."""
    with contexture.open_sync(new_folder()) as ctx:
        ctx.add([Record(id="pump", text="The pump leaks near the valve.", acl=(PUBLIC,))])
        built = ctx.build("where does the pump leak?", model="gpt-4o")
        capsule = ctx.capsule(built.context.build_id)
        report = ctx.verify(pack_capsule(capsule))
        same = [
            ctx.verify(each) for each in (capsule, pack_capsule(capsule).decode(), json.loads(pack_capsule(capsule)))
        ]
        also = [ctx.verify(each).holds for each in (built, built.to_dict())]

        assert "gpt-4o" == capsule.settings["model"]
        assert report.citations
        assert [report] * 3 == same
        assert [True, True] == also
        assert not report.problems


@pytest.mark.integration
def test_a_process_that_closes_nothing_ends_without_a_word(new_folder: Callable[[], Path]) -> None:
    """What it has written is there when the store is opened again."""
    folder = new_folder()
    code = (
        "import sys, contexture\n"
        "ctx = contexture.open_sync(sys.argv[1])\n"
        "ctx.add([{'id': 'pump', 'text': 'The pump leaks.', 'acl': ['public']}])\n"
        "ctx.chat('I like tea.').result()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    with contexture.open_sync(folder) as ctx:
        assert "The pump leaks." == ctx.read("pump").text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda ctx: ctx.ask("Who?", now="2024-01-01"), "now must be a datetime"),
        (lambda ctx: ctx.build("Who?", now="2024-01-01"), "now must be a datetime"),
        (lambda ctx: ctx.search("Who?", now="2024-01-01"), "now must be a datetime"),
        (lambda ctx: ctx.chat("Who?", now="2024-01-01"), "now must be a datetime"),
        (lambda ctx: ctx.search(None), "the query must be a text, not NoneType"),
        (lambda ctx: ctx.search(5), "the query must be a text, not int"),
        (lambda ctx: ctx.chat(None), "a message must be a text, a dict or a ChatRequest, not NoneType"),
        (lambda ctx: ctx.chat({"text": "Hello"}), "unknown field 'text'"),
        (lambda ctx: ctx.ingest(None), "a path must be a text or a pathlib.Path, not NoneType"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence(
    tmp_path: Path, wrong: Callable[[SyncContexture], object], said: str
) -> None:
    """What cannot be meant is neither searched for nor an error of Python's inside."""
    with contexture.open_sync(tmp_path) as ctx, pytest.raises(InvalidRequest, match=said):
        wrong(ctx)


def test_a_message_may_be_a_dict(tmp_path: Path) -> None:
    """A dict without a session belongs to the conversation of the engine, as a text does."""
    with contexture.open_sync(tmp_path) as ctx:
        first = ctx.chat("The valve costs 900 euros.").result()
        second = ctx.chat({"message": "What does the valve cost?"}).result()
        other = ctx.chat({"message": "What does the valve cost?", "session_id": "other"}).result()

    assert second.session_id == first.session_id
    assert other.session_id == "other"
    assert "900 euros" in second.reply


def test_a_store_is_a_folder_with_a_name(tmp_path: Path) -> None:
    """A file, or what is no path, cannot be opened as a store."""
    file = tmp_path / "notes.md"
    file.write_text("The valve.", "utf-8")

    with pytest.raises(ContextError, match=r"'.*notes\.md' is a file, not a folder"):
        contexture.open_sync(file)
    with pytest.raises(InvalidRequest, match="a path must be a text or a pathlib"):
        contexture.open_sync(5)  # pyright: ignore[reportArgumentType] - a caller without a type checker
