"""Fits the maps from cosine to similarity: `python scripts/fit_calibration.py DATA_DIR` prints the knots to pin.

A question and its gold passage are a true pair; the same question and a passage drawn at random from the same
language are an unrelated one. Every set weighs the same. Similarity 0 is put where 5 % of the unrelated pairs lie
below, or at cosine 0 if that is higher, .3 where 95 % of them lie below, and .8 at the median of the true pairs.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contexture.adapters.embedders.granite import Granite
from contexture.adapters.embedders.minilm import MiniLM
from contexture.adapters.embedders.use import MultilingualUSE
from contexture.ports import Embedder
from contexture.types import Vector

PAIRS = 120
SEED = 7
UNRELATED, TRUE = 0.3, 0.8


@dataclass(frozen=True, slots=True)
class Source:
    """A set and the language of the questions taken from it."""

    folder: str
    lang: str


ENGLISH = (Source("scifact", "en"), Source("xquad", "en"), Source("lihua-world", "en"))
OTHERS = (Source("xquad", "ru"), Source("xquad-cross", "ru"), Source("xquad-cross", "en"))


def rows(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passage(row: dict[str, Any]) -> str:
    """A record as it is embedded: its title, then its text."""
    return f"{row['title']} {row['text']}".strip()


async def cosines(embedder: Embedder, data: Path, source: Source, pairs: int) -> tuple[Vector, Vector]:
    """Cosines of true pairs and of unrelated pairs, for the same questions."""
    draw = random.Random(SEED)  # noqa: S311 - a sample, not a secret
    corpus = {row["id"]: row for row in rows(data / source.folder / "corpus.jsonl")}
    asked = [row for row in rows(data / source.folder / "queries.jsonl") if row["gold"] and row["lang"] == source.lang]
    asked = draw.sample(asked, min(pairs, len(asked)))
    gold = [corpus[row["gold"][0]] for row in asked]
    pool = [row for row in corpus.values() if row["lang"] == gold[0]["lang"]]
    questions = await embedder.embed([row["text"] for row in asked])
    true = await embedder.embed([passage(row) for row in gold])
    unrelated = await embedder.embed([passage(draw.choice(pool)) for _ in asked])
    return np.einsum("ij,ij->i", questions, true), np.einsum("ij,ij->i", questions, unrelated)


async def report(embedder: Embedder, data: Path, sources: tuple[Source, ...]) -> None:
    """Print where both kinds of pairs lie, per set and pooled, and the knots."""
    found = [await cosines(embedder, data, source, PAIRS) for source in sources]
    for source, (true, unrelated) in zip(sources, found, strict=True):
        print(f"{embedder.name} {source.folder}/{source.lang}: true {quantiles(true)} unrelated {quantiles(unrelated)}")
    unrelated = np.concatenate([each for _, each in found])
    zero = max(0.0, float(np.quantile(unrelated, 0.05)))
    low = float(np.quantile(unrelated, 0.95))
    high = float(np.median(np.concatenate([true for true, _ in found])))
    print(f"{embedder.name} knots: (({zero:.2f}, 0.0), ({low:.2f}, {UNRELATED}), ({high:.2f}, {TRUE}), (1.0, 1.0))")


def quantiles(values: Vector) -> str:
    """The 5th, 50th and 95th percentiles."""
    return "/".join(f"{value:.2f}" for value in np.quantile(values, [0.05, 0.5, 0.95]))


async def main(data: Path) -> None:
    """Fit the shipped embedders on the languages that each one serves."""
    await report(Granite(), data, ENGLISH)
    await report(MiniLM(), data, ENGLISH)
    await report(MultilingualUSE(), data, OTHERS)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
