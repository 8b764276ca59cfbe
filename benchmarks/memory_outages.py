"""How long a chat waits for a memory service that fails, and how soon it recalls again.

`python -m benchmarks.memory_outages`: a real service of memories, in a process of its own, is killed, hangs, lies and
refuses while messages are sent.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

import contexture
from contexture.config import Settings
from contexture.conversation import HealthState

SERVER = Path(__file__).parents[1] / "tests" / "integration" / "memory_server.py"
FAILURES = {
    "killed": "",
    "hung": "hung",
    "slow": "slow",
    "lying": "garbage",
    "of other types": "wrong types",
    "refusing": "500",
}
MESSAGES = 8


class Server:
    """The process, on a port that stays the same when it is started again."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, str(SERVER), str(self.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline() if self.process.stdout else 0)

    def stop(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()

    def behave(self, name: str) -> None:
        """Tell it how to answer from now on."""
        httpx.post(f"http://127.0.0.1:{self.port}/behave", json={"as": name}, timeout=10).raise_for_status()


async def measure(failure: str, behaviour: str) -> str:
    """One row: the slowest message while it fails, how many named the loss, and the seconds until memories return."""
    server = Server()
    try:
        with TemporaryDirectory() as home:
            settings = Settings(home=Path(home), memory_url=f"http://127.0.0.1:{server.port}")
            async with contexture.open(settings) as engine:
                turn = {"user_message": "When does the ferry leave?"}
                assert (await engine.build_turn(turn)).snippets  # noqa: S101 - memory works before it fails
                await asyncio.to_thread(server.behave, behaviour) if behaviour else server.stop()
                waits: list[float] = []
                named = 0
                for number in range(MESSAGES):
                    request = contexture.ChatRequest(message=f"I have {number} boats. When does the ferry leave?")
                    start = time.perf_counter()
                    result = await engine.chat.run(request, scope=engine.scope)
                    waits.append(time.perf_counter() - start)
                    named += any(each.source == "memory" for each in result.degradations)
                state = engine.health.state()
                await asyncio.to_thread(server.behave, "well") if behaviour else server.start()
                start = time.perf_counter()
                while not (await engine.build_turn(turn)).snippets:  # noqa: ASYNC110 - as a client asks again
                    await asyncio.sleep(0.25)
                back = time.perf_counter() - start
    finally:
        server.stop()
    normal = "" if state is HealthState.NORMAL else f", {state}"
    return f"| {failure} | {max(waits):.2f} s | {named} of {MESSAGES}{normal} | {back:.1f} s |"


async def main() -> None:
    """Print a table."""
    print("| the service is | slowest message | loss named | memories again after |\n|---|---|---|---|")
    for failure, behaviour in FAILURES.items():
        print(await measure(failure, behaviour), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
