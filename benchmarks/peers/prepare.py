"""Makes the material of a run: a made-up corpus of any size, or a folder of questions with known answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.corpus import questions, records, warm_up
from benchmarks.peers.material import Asked, Document, Material
from benchmarks.vectors import Synthetic

from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.evaluation import _harness as harness
from contexture.ports import Embedder
from contexture.text.language import detect_language
from contexture.types import Matrix, Record
from contexture.wiring import plugins

SEED = 51

_BATCH = 64
_WARM_UP = 30


@dataclass(frozen=True, slots=True)
class Folder:
    """An evaluation folder, where its vectors are kept between runs, and how much of it is used."""

    path: Path
    asked: int
    kept: Path
    records: int

    def embedder(self, name: str) -> CachedEmbedder:
        """A shipped embedder that computes each text once."""
        self.kept.mkdir(parents=True, exist_ok=True)
        return CachedEmbedder(plugins.load_embedder(name, threads=1), self.kept / "embeddings.sqlite")


def made_up(size: int, asked: int) -> Material:
    """A corpus without known answers: for speed, memory and budgets."""
    measured, before = (
        [Asked(f"q{at}", text, "en") for at, text in enumerate(texts)]
        for texts in (questions(asked, seed=SEED), warm_up(asked))
    )
    documents = [document(owned.record) for block in records(size) for owned in block]
    embedder = Synthetic(plugins.load_embedder("minilm", threads=1))
    return asyncio.run(_with_vectors(documents, measured, before, embedder))


def real(folder: Folder) -> Material:
    """A corpus with known answers; one vector space holds it all, MiniLM's where everything is English, else USE's."""
    stored, measured, before = chosen(folder)
    documents = [document(record) for record in stored]
    embedder = folder.embedder("minilm" if {each.lang for each in documents} == {"en"} else "use")
    return asyncio.run(_with_vectors(documents, measured, before, embedder))


def chosen(folder: Folder) -> tuple[list[Record], list[Asked], list[Asked]]:
    """The records of a folder, the questions to measure, and others to warm up with.

    Where not all records are used, those that answer measured questions are, and then the first ones.
    """
    answerable = [question for question in harness.load_questions(folder.path) if question.gold]
    every = [Asked(each.id, each.text, detect_language(each.text), tuple(sorted(each.gold))) for each in answerable]
    measured = spread(every, folder.asked)
    others = [each for each in every if each not in set(measured)]
    gold = {found for each in measured for found in each.gold}
    stored = sorted(harness.load_corpus(folder.path), key=lambda record: record.id not in gold)
    return stored[: max(folder.records, len(gold))], measured, spread(others, _WARM_UP)


def document(record: Record) -> Document:
    """A record as the other libraries store it."""
    text = f"{record.title}. {record.text}" if record.title else record.text
    return Document(record.id, text, record.lang or detect_language(text))


def spread(items: Sequence[Asked], most: int) -> list[Asked]:
    """At most so many of the items, evenly spaced."""
    if len(items) <= most:
        return list(items)
    return [items[at * len(items) // most] for at in range(most)]


async def _with_vectors(
    documents: Sequence[Document], measured: Sequence[Asked], before: Sequence[Asked], embedder: Embedder
) -> Material:
    return Material(
        documents=documents,
        vectors=await embedded(embedder, [each.text for each in documents]),
        questions=measured,
        warm_up=before,
        asked=await embedded(embedder, [each.text for each in (*measured, *before)]),
    )


async def embedded(embedder: Embedder, texts: Sequence[str]) -> Matrix:
    """A row per text, made in batches, so that what was computed is kept if the rest is cut short."""
    if not texts:
        return np.empty((0, embedder.dimensions), np.float32)
    return np.concatenate([await embedder.embed(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)])
