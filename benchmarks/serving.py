"""A real service under load: `python -m benchmarks.serving` fills a store, serves it, and asks for turns.

First as many clients as there are places ask one after the other: turns a second and their times. Then requests come
at a multiple of that rate, whether they are answered or not: the share that is sent away, and the times of the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TypeAlias
from urllib.parse import urlsplit

import psutil
from benchmarks.corpus import SCOPE, questions
from benchmarks.store import EXACT, Models, opened
from benchmarks.timing import Numbers, percentile
from benchmarks.turn import filled_with_memories

Door: TypeAlias = tuple[str, str]

MOST = 400  # connections of a flood
_SERVED = 200


@dataclass(slots=True)
class Tally:
    """Milliseconds of each answer, by status, and how many requests found no connection to go out on."""

    times: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    kept_back: int = 0

    def note(self, status: int, seconds: float) -> None:
        """Note an answer."""
        self.times.setdefault(status, []).append(seconds * 1_000)

    def numbers(self, name: str, seconds: float) -> Numbers:
        """What was served, how fast, and what share was sent away."""
        served = self.times.get(_SERVED, [0.0])
        everything = sum(map(len, self.times.values()))
        refused = [each for status, times in self.times.items() if status != _SERVED for each in times]
        return {
            f"{name}_per_s": len(served) / seconds,
            f"{name}_p50_ms": statistics.median(served),
            f"{name}_p99_ms": percentile(served, 0.99),
            f"{name}_asked_per_s": everything / seconds,
            f"{name}_shed_share": len(refused) / everything,
            f"{name}_shed_p50_ms": statistics.median(refused) if refused else 0.0,
            f"{name}_failed": float(sum(len(times) for status, times in self.times.items() if status in {0, 500})),
            f"{name}_kept_back": float(self.kept_back),
        }


class Client:
    """One connection that asks for turns; as little of HTTP as that takes, so that asking costs next to nothing."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._token = token
        self._place = parts.hostname or "", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: bytes) -> int:
        """The status of the answer; 0 when there was none. A line that was hung up meanwhile is opened again."""
        used = self._streams is not None
        return await self._asked(body) or (await self._asked(body) if used else 0)

    async def _asked(self, body: bytes) -> int:
        try:
            reader, writer = self._streams = self._streams or await asyncio.open_connection(*self._place)
            head = f"POST /v1/context/turn HTTP/1.1\r\nHost: {self._place[0]}\r\nContent-Type: application/json\r\n"
            head += f"Authorization: Bearer {self._token}\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            told = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await reader.readexactly(int(told.partition("content-length: ")[2].partition("\r\n")[0]))
        except (OSError, asyncio.IncompleteReadError, ValueError):
            self.close()
            return 0
        return int(told.split(" ", 2)[1])

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def bodies(number: int, seed: int) -> list[bytes]:
    """Turns with unseen questions and a little history."""
    history = [{"role": "user", "content": "Hello there."}, {"role": "assistant", "content": "Hello. What is it?"}]
    return [json.dumps({"user_message": text, "history": history}).encode() for text in questions(number, seed=seed)]


async def steady(door: Door, clients: int, seconds: float, asked: Sequence[bytes]) -> Tally:
    """Clients that each ask again as soon as they are answered."""
    tally, numbers, end = Tally(), count(), perf_counter() + seconds

    async def client() -> None:
        line = Client(*door)
        while perf_counter() < end:
            started = perf_counter()
            status = await line.ask(asked[next(numbers) % len(asked)])
            tally.note(status, perf_counter() - started)
        line.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return tally


async def flood(door: Door, rate: float, seconds: float, asked: Sequence[bytes]) -> Tally:
    """Requests at a rate, whatever becomes of them."""
    tally, free, busy = Tally(), [Client(*door) for _ in range(MOST)], set[asyncio.Task[None]]()

    async def one(line: Client, body: bytes) -> None:
        started = perf_counter()
        tally.note(await line.ask(body), perf_counter() - started)
        free.append(line)

    start, sent = perf_counter(), 0
    while (now := perf_counter() - start) < seconds:
        while sent < now * rate:
            sent += 1
            if free:
                task = asyncio.create_task(one(free.pop(), asked[sent % len(asked)]))
                busy.add(task)
                task.add_done_callback(busy.discard)
            else:
                tally.kept_back += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*busy)
    for line in free:
        line.close()
    return tally


async def fill(folder: Path, memories: int) -> None:
    """Memories with made-up vectors; questions are embedded by the real models, which find them by their words."""
    models = Models(folder)
    index = await opened(folder, models, exact_limit=EXACT)
    await filled_with_memories(index, models, memories, lambda *_: None)
    await index.optimize()
    await index.close()
    models.close()


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[Door, psutil.Process]]:
    """The address of a service over the store and what it takes to be answered, and its process."""
    words = ["serve", "--home", str(folder), "--port", "0", "--json", "--tenant", SCOPE.tenant, "--user", SCOPE.user]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from contexture.cli.main import app; app()",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        if process.stdout is None:
            raise OSError("the service has no standard output")
        url: str = json.loads(await process.stdout.readline())["url"]
        token: str = json.loads((folder / "serve.json").read_text(encoding="utf-8"))["token"]
        yield (url, token), psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def measured(given: argparse.Namespace, folder: Path) -> Numbers:
    """Every figure of one run."""
    await fill(folder, given.memories)
    async with served(folder) as (door, process):
        await steady(door, given.clients, 3, bodies(200, seed=91))
        weights = [process.memory_info().rss / 1e6]
        calm = await steady(door, given.clients, given.seconds, bodies(5_000, seed=92))
        weights.append(process.memory_info().rss / 1e6)
        numbers = calm.numbers("serve_turns", given.seconds)
        rate = numbers["serve_turns_per_s"] * given.overload
        storm = await flood(door, rate, given.seconds, bodies(5_000, seed=93))
        numbers |= storm.numbers("serve_overload", given.seconds)
        weights.append(process.memory_info().rss / 1e6)
    return {**numbers, **{f"serve_rss_{at}_mb": weight for at, weight in enumerate(weights)}}


def main(arguments: Sequence[str]) -> None:
    """Measure, and print one figure a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=8, help="clients that ask one after the other")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each part")
    parser.add_argument("--overload", type=float, default=10.0, help="how many times the measured rate")
    given = parser.parse_args(arguments)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name, value in asyncio.run(measured(given, Path(folder))).items():
            print(f"{name:28} {value:10.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
