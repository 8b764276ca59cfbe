"""What was acknowledged survives SIGKILL: events of sessions, and memories between enqueue and delivery."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contexture.adapters.conversation.outbox import Outbox
from contexture.adapters.conversation.sqlite import SqliteSessions
from contexture.testing.doubles import FixedClock, ScriptedMemory
from contexture.types import Scope
from support.processes import child_environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TALKER = Path(__file__).with_name("talker.py")
THINKER = Path(__file__).with_name("thinker.py")


def acknowledged_before_kill(folder: Path, lines: int, program: Path = TALKER) -> list[str]:
    """What a program said before it was killed, after at least so many lines."""
    command = [sys.executable, str(program), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as talker:
        stream = talker.stdout
        assert stream is not None
        said = [stream.readline().strip() for _ in range(lines)]
        talker.kill()
        return [line for line in (*said, *stream.read().splitlines()) if line]


@pytest.mark.parametrize("lines", [7, 60])
async def test_nothing_acknowledged_is_lost(new_folder: Callable[[], Path], lines: int) -> None:
    """Every event is there in order and in pairs, and every memory is delivered by the next process, once by key."""
    folder = new_folder()
    said = acknowledged_before_kill(folder, lines)
    events = sum(line.startswith("event") for line in said)
    memories = sum(line.startswith("memory") for line in said)
    sessions = SqliteSessions(folder / "sessions.sqlite")
    service = ScriptedMemory()
    outbox = Outbox(folder / "outbox.sqlite", service, clock=FixedClock())
    status = await outbox.drain()
    found = await sessions.list_events(Scope.local(), "s", limit=1_000_000)
    await outbox.stop()
    sessions.close()

    assert len(found) in (2 * events, 2 * events + 2)  # one more pair may have been written and not yet told
    assert [f"{number}{letter}" for number in range(len(found) // 2) for letter in "ab"] == [each.id for each in found]
    assert list(range(1, len(found) + 1)) == [each.position for each in found]
    assert 0 == status.waiting
    delivered = [memory.idempotency_key for memory in service.remembered]
    assert [f"k{number}" for number in range(len(delivered))] == delivered
    assert len(delivered) in (memories, memories + 1)


async def test_a_kill_between_delivery_and_its_note_delivers_again_under_the_same_key(
    new_folder: Callable[[], Path],
) -> None:
    """At least once: what was delivered but not yet ticked off comes again, and is recognised."""
    path = new_folder() / "outbox.sqlite"
    acknowledged_before_kill(path.parent, 12)
    service = ScriptedMemory()
    first = Outbox(path, service, clock=FixedClock())

    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    first._settle = killed  # pyright: ignore[reportAttributeAccessIssue] - the process ends here
    with pytest.raises(KeyboardInterrupt):
        await first.drain()
    second = Outbox(path, service, clock=FixedClock())
    await second.drain()
    await second.stop()

    keys = [memory.idempotency_key for memory in service.remembered]
    assert keys[: len(keys) // 2] == keys[len(keys) // 2 :]


async def test_a_message_outlives_a_process_that_is_killed_while_the_model_thinks(
    new_folder: Callable[[], Path],
) -> None:
    """It is in its session, without an answer."""
    folder = new_folder()
    assert ["asked"] == acknowledged_before_kill(folder, 1, THINKER)
    sessions = SqliteSessions(folder / "sessions.sqlite")
    (found,) = await sessions.list_events(Scope.local(), "s")
    sessions.close()

    assert ("user", "The key is blue.", 1) == (found.message["role"], found.message["content"], found.position)
