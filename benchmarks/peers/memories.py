"""Memory beside the memory modules of other libraries, in one run: how much of the evidence is in the prompt.

`python -m benchmarks.peers.memories DIR` stores the messages of DIR's dialogues in each, asks its questions, and prints
for budgets of 500, 1,000 and 2,000 tokens how often all of the evidence, and any of it, is in the prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from benchmarks.peers import run
from benchmarks.peers.memory_peers import BUDGETS, PEERS
from benchmarks.peers.prepare import embedded

from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.config import Settings
from contexture.evaluation import _harness as harness
from contexture.evaluation.corpus import evaluate_memories
from contexture.wiring import plugins

BEGIN, END = (
    "<!-- memories: written by `python -m benchmarks.peers.memories --write-docs` -->",
    "<!-- end of memories -->",
)
LIMITS: Mapping[str, str] = {
    "contexture": "redacts, labels, packs and counts the whole prompt, with its labels and notice",
    "mem0": "`infer=False`, because inferring needs a model; no token budget: whole texts while exact counts fit",
    "langchain": "`VectorStoreRetrieverMemory`, deprecated; a number of memories and no token budget: the same loop",
    "llamaindex": "`VectorMemoryBlock`; keeps the whole block or drops it: the same loop; the store is an exact one",
}
_COLUMNS = ("gold_hit", "gold_any")

Row = dict[str, dict[str, float]]


def measure(folder: Path, home: Path, python: Path) -> dict[str, Any]:
    """The shares of every library by budget, over all questions but the adversarial ones."""
    asked = [each for each in harness.load_questions(folder) if each.gold and not each.adversarial]
    settings = Settings(home=home, embedder="granite")
    rows: dict[str, Row] = {"contexture": asyncio.run(evaluate_memories(folder, tokens=BUDGETS, settings=settings))}
    versions = {"contexture": version("contexture-ai")}
    with TemporaryDirectory(prefix="contexture-memories-") as scratch:
        _write_material(folder, asked, Path(scratch), home)
        run.unpack_ranks(Path(scratch) / "tiktoken")
        for name in PEERS:
            told = _ask_peer(name, Path(scratch), python)
            rows[name] = {budget: _summarize(found) for budget, found in told["rows"].items()}
            versions[name] = told["version"]
    return {"questions": len(asked), "rows": rows, "versions": versions}


def _write_material(folder: Path, asked: Sequence[harness.Question], scratch: Path, home: Path) -> None:
    messages = [
        {"id": each.id, "text": each.text, "group": each.payload.get("group", "")}
        for each in harness.load_corpus(folder)
    ]
    questions = [{"text": each.text, "group": each.group or "", "gold": sorted(each.gold)} for each in asked]
    (scratch / "material.json").write_text(json.dumps({"messages": messages, "questions": questions}), encoding="utf-8")
    embedder = CachedEmbedder(plugins.load_embedder("granite", threads=1), home / "embeddings.sqlite")
    texts = [str(each["text"]) for each in (*messages, *questions)]
    np.save(scratch / "vectors.npy", asyncio.run(embedded(embedder, texts)))


def _ask_peer(name: str, scratch: Path, python: Path) -> dict[str, Any]:
    own, out = scratch / name, scratch / f"{name}.json"
    own.mkdir()
    words = [str(python), "-m", "benchmarks.peers.memory_peers", name, str(scratch), str(own), str(out)]
    environment = {**run.ALONE, "HOME": str(own), "MEM0_DIR": str(own), "TIKTOKEN_CACHE_DIR": str(scratch / "tiktoken")}
    subprocess.run(words, cwd=run.ROOT, env=environment, check=True, timeout=run.PATIENCE)  # noqa: S603 - our module
    return json.loads(out.read_text(encoding="utf-8"))


def _summarize(found: Sequence[tuple[int, int, int]]) -> dict[str, float]:
    return {
        "gold_hit": mean(held == gold for held, gold, _ in found),
        "gold_any": mean(held > 0 for held, _, _ in found),
        "tokens": mean(tokens for _, _, tokens in found),
    }


def markdown(results: Mapping[str, Any]) -> str:
    """A table of shares, all and any evidence at each budget."""
    head = [f"{name} {budget:,}" for budget in BUDGETS for name in ("all", "any")]
    lines = [f"| library | {' | '.join(head)} | limits |", f"|{'---|' * (len(head) + 2)}"]
    for name, row in results["rows"].items():
        cells = [f"{row[str(budget)][column]:.3f}".lstrip("0") for budget in BUDGETS for column in _COLUMNS]
        lines.append(f"| {results['versions'][name]} | {' | '.join(cells)} | {LIMITS[name]} |")
    lines[2] = lines[2].replace(f"| {results['versions']['contexture']} |", "| **Contexture** |", 1)
    return "\n".join(lines)


def draw(results: Mapping[str, Any]) -> str:
    """An SVG with a group of bars for each budget: the share of questions with all of their evidence in the prompt."""
    names = list(results["rows"])
    bars: list[str] = []
    for at, budget in enumerate(BUDGETS):
        for number, name in enumerate(names):
            share, x = results["rows"][name][str(budget)]["gold_hit"], 40 + 270 * at + 60 * number
            top = 240 - 180 * share
            kind = "ours" if number == 0 else "other"
            bars += [
                f'<rect class="{kind}" x="{x}" y="{top:.0f}" width="50" height="{240 - top:.0f}"/>',
                f'<text x="{x + 25}" y="{top - 6:.0f}">{share:.2f}</text>',
                f'<text class="small" x="{x + 25}" y="256">{name}</text>',
            ]
        bars.append(f'<text x="{155 + 270 * at}" y="280">{budget:,} tokens</text>')
    style = (
        "text { font: 14px system-ui, sans-serif; fill: #4b5563; text-anchor: middle; } .small { font-size: 10px; }"
        ".ours { fill: #0d9488; } .other { fill: #94a3b8; }"
        "@media (prefers-color-scheme: dark)"
        " { text { fill: #cbd5e1; } .other { fill: #64748b; } .ours { fill: #2dd4bf; } }"
    )
    title = "Questions whose whole evidence is in the prompt"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 296" role="img"><title>{title}</title>',
            f"<style>{style}</style>",
            f'<text x="420" y="24">{title}</text>',
            *bars,
            "</svg>",
        )
    )


def main(arguments: Sequence[str]) -> None:
    """Measure what the options ask for, and report it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.memories", description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with corpus and queries.jsonl, in groups")
    parser.add_argument("--home", type=Path, default=run.ROOT / ".contexture" / "peers", help="where vectors are kept")
    parser.add_argument(
        "--python", type=Path, default=run.ROOT / ".venv-peers" / "bin" / "python", help="for the others"
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="write the table and the picture of docs/benchmarks.md"
    )
    given = parser.parse_args(arguments)
    results = measure(given.data, given.home, given.python)
    print(json.dumps(results))
    print(markdown(results))
    if given.write_docs:
        page = run.ROOT / "docs" / "benchmarks.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n\n{END}{after}", encoding="utf-8")
        (run.ROOT / "docs" / "images" / "memories.svg").write_text(draw(results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
