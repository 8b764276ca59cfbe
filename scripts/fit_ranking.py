"""Fits the lexical shares of `retrieval/ranking.toml`: `python scripts/fit_ranking.py DATA_DIR [--home DIR]`.

Reads only sets with free licences: SciFact, XQuAD and LiHua-World. Each question is searched once, and what was found
is ranked again with every share of a grid, the other weights as they are in the file. Printed is the mean measure of
each share, by kind of record and language of the question, and the share that is chosen: the middle of those whose
measure is within `TOLERANCE` of the best, because the curves are flat and their peaks are noise.

Of SciFact a sample is read, `RECORDS` abstracts with those that answer `QUESTIONS` claims. The weights of `turn` and
those of `neighbour` and `time` are chosen by hand and not fitted. Embeddings are cached in the home folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace as changed

from contexture import wiring
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.evaluation import _harness as harness
from contexture.ledger import Trace
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.ranking import RankingModel, load_ranking_model
from contexture.retrieval.search import HybridSearch, SearchOptions
from contexture.types import Equals, Record

SHARES = tuple(at / 20 for at in range(2, 15))
TOLERANCE = 0.002
RECORDS, QUESTIONS, POOL, SEED = 1_500, 300, 100, 7


@dataclass(frozen=True, slots=True)
class Source:
    """A set, the part of the weights that it teaches, and its measure."""

    folder: str
    kind: str
    lang: str = ""
    ndcg: bool = False

    def measure(self, ranking: Sequence[str], gold: frozenset[str]) -> float:
        """The measure of one ranking."""
        return harness.ndcg(ranking, gold, 10) if self.ndcg else harness.recall(ranking, gold, 5)


SOURCES = (
    Source("scifact", "prose", "en", ndcg=True),
    Source("xquad", "prose", "en"),
    Source("xquad", "prose", "ru"),
    Source("lihua-world", "dialogue"),
)


def sample(records: list[Record], asked: list[harness.Question]) -> tuple[list[Record], list[harness.Question]]:
    """At most so many questions, and records with all that answer them."""
    draw = random.Random(SEED)  # noqa: S311 - a sample, not a secret
    asked = draw.sample(asked, min(QUESTIONS, len(asked)))
    gold = frozenset[str]().union(*(question.gold for question in asked))
    others = [record for record in records if record.id not in gold]
    chosen = {record.id for record in draw.sample(others, min(len(others), max(0, RECORDS - len(gold))))} | gold
    return [record for record in records if record.id in chosen], asked


def with_share(model: RankingModel, share: float) -> RankingModel:
    """The weights with another lexical share."""
    parts = {"lexical": share, "lexical_unnamed": 0.0, "semantic": 1 - share}
    return RankingModel(
        {kind: changed(weights, **parts) for kind, weights in model.by_kind.items()},
        {key: changed(weights, **parts) for key, weights in model.by_language.items()},
    )


async def measure_shares(data: Path, source: Source, home: Path) -> list[float]:
    """The mean measure of each share on one set."""
    asked = [question for question in harness.load_questions(data / source.folder) if question.gold]
    if source.folder == "xquad":
        asked = [question for question in asked if question.id in languages(data / "xquad", source.lang)]
    records, asked = sample(harness.load_corpus(data / source.folder), asked)
    settings = Settings(home=home)
    encoders = wiring.encoders(settings)
    async with harness.open_temporary_engine(records, settings, harness.ignore_progress) as engine:
        return [await _measure(engine, encoders, source, asked, share) for share in SHARES]


def languages(folder: Path, lang: str) -> frozenset[str]:
    """The ids of the questions in a language."""
    lines = (folder / "queries.jsonl").read_text("utf-8").split("\n")
    return frozenset(str(row["id"]) for row in map(json.loads, filter(None, lines)) if row["lang"] == lang)


async def _measure(
    engine: Contexture, encoders: Encoders, source: Source, asked: Sequence[harness.Question], share: float
) -> float:
    options = SearchOptions(ranking=with_share(load_ranking_model(), share))
    search = HybridSearch(index=engine.index, encoders=encoders, options=options)
    found: list[float] = []
    for question in asked:
        where = Equals("group", question.group) if question.group else None
        hits = await search.search(
            engine.scope, harness.COLLECTION, question.text, where=where, pool=POOL, trace=Trace(), now=question.asked
        )
        ranking = list(dict.fromkeys(each.hit.record.id for each in hits))
        found.append(source.measure(ranking, question.gold))
    return harness.mean(found)


def choose_share(curve: Sequence[float]) -> float:
    """The middle of the shares that are nearly the best."""
    near = [share for share, value in zip(SHARES, curve, strict=True) if value >= max(curve) - TOLERANCE]
    return round((near[0] + near[-1]) / 2 * 20) / 20


async def main(data: Path, home: Path) -> None:
    """Print the curves and what follows from them."""
    print("kind      lang " + " ".join(f"{share:.2f}" for share in SHARES))
    curves: dict[tuple[str, str], list[list[float]]] = {}
    for source in SOURCES:
        curve = await measure_shares(data, source, home)
        curves.setdefault((source.kind, source.lang), []).append(curve)
        print(f"{source.kind:9} {source.lang or 'all':4} " + " ".join(f"{value:.3f}" for value in curve), source.folder)
    for (kind, lang), some in curves.items():
        mean = [harness.mean(values) for values in zip(*some, strict=True)]
        print(f"{kind} {lang or 'all'}: lexical = {choose_share(mean):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--home", type=Path, default=Path(".contexture"))
    given = parser.parse_args()
    asyncio.run(main(given.data, given.home))
