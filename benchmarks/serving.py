"""A real service under load: `python -m benchmarks.serving` fills a store, serves it, and lets wrk ask for turns.

First as many connections as there are places ask one after the other: turns a second and their times, for questions
that come back by Zipf's law, as those of people do, and for questions nobody asked before. Then requests come at a
multiple of the first rate: the share that is sent away, and the times of the others, as the service itself notes
them. With `--minutes` the first load goes on for so long at the end, and the service's memory is noted all along.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx
import psutil
from benchmarks.caching import trace
from benchmarks.corpus import SCOPE, questions
from benchmarks.store import Models, opened
from benchmarks.timing import Numbers
from benchmarks.turn import filled_with_memories

_TRACE = 5_000
_UNSEEN = 20_000
_NOTED = 10.0  # seconds between two looks at the memory
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
_SECONDS = re.compile(
    r'contexture_http_request_seconds_bucket\{le="([^"]+)",method="POST",route="/v1/context/turn"\} (\S+)'
)

# One thread of wrk, so that its counts are whole. `pause` spreads the requests of a flood over time.
_SCRIPT = """
local bodies, at, threads = {}, 0, {}
for line in io.lines("%(bodies)s") do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer %(token)s"
setup = function(thread) table.insert(threads, thread) end
request = function()
  at = at %% #bodies + 1
  return wrk.format(nil, nil, nil, bodies[at])
end
if %(pause)d > 0 then
  delay = function() return math.random(0, 2 * %(pause)d) end
end
served, refused, failed = 0, 0, 0
response = function(status)
  if status == 200 then served = served + 1
  elseif status == 429 or status == 503 then refused = refused + 1
  else failed = failed + 1 end
end
done = function(summary)
  local told, lost = threads[1], summary.errors
  print(string.format('{"served": %%d, "refused": %%d, "failed": %%d, "seconds": %%f}',
    told:get("served"), told:get("refused"),
    told:get("failed") + lost.connect + lost.read + lost.write + lost.timeout, summary.duration / 1e6))
end
"""


class Door(NamedTuple):
    """Where the service is, and what opens it."""

    url: str
    token: str


class Load(NamedTuple):
    """What wrk is to do: connections, seconds, and the mean pause of a connection between requests."""

    connections: int
    seconds: float
    pause: int = 0


def bodies(texts: Sequence[str]) -> str:
    """Turns with these questions and a little history, one a line."""
    history = [{"role": "user", "content": "Hello there."}, {"role": "assistant", "content": "Hello. What is it?"}]
    return "\n".join(json.dumps({"user_message": text, "history": history}) for text in texts)


async def asked(door: Door, load: Load, texts: Sequence[str], folder: Path, name: str) -> Numbers:
    """What wrk and the service say of a load."""
    (folder / "bodies").write_text(bodies(texts), encoding="utf-8")
    script = folder / "wrk.lua"
    script.write_text(_SCRIPT % {"bodies": folder / "bodies", "token": door.token, "pause": load.pause})
    before = await _noted(door)
    words = ["-t1", f"-c{load.connections}", f"-d{load.seconds:g}s", "--latency", "--timeout", "30s", "-s", script]
    wrk = await asyncio.create_subprocess_exec(
        "wrk", *map(str, words), f"{door.url}/v1/context/turn", stdout=asyncio.subprocess.PIPE
    )
    told = (await wrk.communicate())[0].decode()
    counts: Mapping[str, float] = json.loads(told.strip().splitlines()[-1])
    times = _between(before, await _noted(door))
    everything = counts["served"] + counts["refused"] + counts["failed"]
    return {
        f"{name}_per_s": counts["served"] / counts["seconds"],
        f"{name}_p50_ms": _latency(told, "50") if not counts["refused"] else _quantile(times, 0.5),
        f"{name}_p99_ms": _latency(told, "99") if not counts["refused"] else _quantile(times, 0.99),
        f"{name}_inside_p50_ms": _quantile(times, 0.5),
        f"{name}_inside_p99_ms": _quantile(times, 0.99),
        f"{name}_asked_per_s": everything / counts["seconds"],
        f"{name}_shed_share": counts["refused"] / max(1, everything),
        f"{name}_failed": counts["failed"],
    }


def _latency(told: str, percent: str) -> float:
    """A percentile as wrk prints it, in milliseconds."""
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m)\s*$", told, re.MULTILINE)
    if found is None:
        raise ValueError(f"wrk did not say how long requests took: {told}")
    return float(found[1]) * _MILLISECONDS[found[2]]


async def _noted(door: Door) -> dict[float, float]:
    """How many turns took at most so many seconds, as the service counts them."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {door.token}"}) as client:
        text = (await client.get(f"{door.url}/metrics")).text
    return {float(limit): float(count) for limit, count in _SECONDS.findall(text)}


def _between(before: Mapping[float, float], after: Mapping[float, float]) -> dict[float, float]:
    return {limit: count - before.get(limit, 0.0) for limit, count in after.items()}


def _quantile(counts: Mapping[float, float], share: float) -> float:
    """The milliseconds within which a share of the requests was answered; between two limits in proportion."""
    wanted = share * max(counts.values(), default=0.0)
    steps = [(0.0, 0.0), *sorted(counts.items())]
    for (low, few), (high, many) in pairwise(steps):
        if many >= wanted > few:
            return 1e3 * (low if high == float("inf") else low + (high - low) * (wanted - few) / (many - few))
    return 0.0


async def fill(folder: Path, memories: int) -> None:
    """Memories with made-up vectors; questions are embedded by the real models, which find them by their words."""
    models = Models(folder)
    index = await opened(folder, models)
    await filled_with_memories(index, models, memories, lambda *_: None)
    await index.optimize()
    await index.close()
    models.close()


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[tuple[Door, psutil.Process]]:
    """A service over the store, and its process."""
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
        yield Door(url, token), psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def measured(given: argparse.Namespace, folder: Path) -> Numbers:
    """Every figure of one run."""
    known = [text for text in trace(_TRACE) if text is not None]
    store = folder / "store"
    await fill(store, given.memories)
    async with serving(store) as (door, process):
        calm = Load(given.clients, given.seconds)
        await asked(door, Load(given.clients, 5.0), known, folder, "warm")
        numbers = await asked(door, calm, known, folder, "serve_turns")
        numbers |= await asked(door, calm, questions(_UNSEEN, seed=92), folder, "serve_unseen")
        crowd = int(given.clients * given.overload)
        pause = round(1e3 * crowd / (given.overload * numbers["serve_turns_per_s"]))
        numbers |= await asked(door, Load(crowd, given.seconds, pause), known, folder, "serve_overload")
        if given.minutes:
            numbers |= await _over_time(door, process, Load(given.clients, 60 * given.minutes), known, folder)
    return numbers


async def _over_time(door: Door, process: psutil.Process, load: Load, texts: Sequence[str], folder: Path) -> Numbers:
    """The service's memory while it answers for minutes: after the first tenth, at most, and at the end."""
    weights: list[float] = []

    async def watch() -> None:
        while True:
            weights.append(process.memory_info().rss / 1e6)
            await asyncio.sleep(_NOTED)

    watching = asyncio.create_task(watch())
    numbers = await asked(door, load, texts, folder, "serve_long")
    watching.cancel()
    settled = weights[len(weights) // 10]
    return {
        **numbers,
        "serve_rss_early_mb": settled,
        "serve_rss_most_mb": max(weights),
        "serve_rss_end_mb": weights[-1],
    }


def main(arguments: Sequence[str]) -> None:
    """Measure, and print one figure a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=8, help="connections that ask one after the other")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each part")
    parser.add_argument("--overload", type=float, default=10.0, help="how many times the measured rate")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long memory is watched at the end")
    parser.add_argument("--json", type=Path, help="also write the figures into this file")
    given = parser.parse_args(arguments)
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed; Debian has it in the package wrk")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        numbers = asyncio.run(measured(given, Path(folder)))
    for name, value in numbers.items():
        print(f"{name:28} {value:10.2f}")
    if given.json:
        given.json.write_text(json.dumps(numbers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
