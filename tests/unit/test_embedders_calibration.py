"""Calibration: a rising map, and medians that hold on the development sets."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from contexture.adapters.embedders.encoding import Calibration, normalize_vector
from contexture.adapters.embedders.granite import Granite
from contexture.adapters.embedders.minilm import MiniLM
from contexture.adapters.embedders.use import MultilingualUSE


def test_knots_are_met_and_joined_by_lines() -> None:
    """Between two knots the similarity is in proportion; beyond the outer ones it stays."""
    similarities = Calibration(((0.0, 0.0), (0.2, 0.4), (1.0, 1.0)))(np.array([-0.5, 0.1, 0.2, 0.6, 1.1], np.float32))

    assert np.allclose([0.0, 0.2, 0.4, 0.7, 1.0], similarities)
    assert np.float32 == similarities.dtype


def test_a_vector_of_zeros_gets_a_direction() -> None:
    """Even the zero vector becomes a unit vector."""
    assert [1.0, 0.0] == normalize_vector(np.zeros(2, np.float32)).tolist()


@pytest.mark.parametrize(
    ("embedder", "folder", "lang"),
    [
        (Granite(), "xquad", "en"),
        (MiniLM(), "xquad", "en"),
        (MultilingualUSE(), "xquad", "ru"),
        (MultilingualUSE(), "xquad-cross", "ru"),
        (MultilingualUSE(), "xquad-cross", "en"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
async def test_medians_mean_what_thresholds_assume(
    eval_data: Path, embedder: Granite | MiniLM | MultilingualUSE, folder: str, lang: str
) -> None:
    """Half of the true pairs pass .7 to .9, and nine in ten unrelated pairs stay below .3."""
    with (eval_data / folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        corpus = {row["id"]: row for row in map(json.loads, lines)}
    with (eval_data / folder / "queries.jsonl").open(encoding="utf-8") as lines:
        asked = list(islice((row for row in map(json.loads, lines) if row["lang"] == lang), 0, 400, 10))
    gold = [corpus[row["gold"][0]]["text"] for row in asked]
    questions = await embedder.embed([row["text"] for row in asked])
    passages = await embedder.embed(gold)
    true = embedder.calibrate(np.einsum("ij,ij->i", questions, passages))
    unrelated = embedder.calibrate(np.einsum("ij,ij->i", questions, np.roll(passages, len(gold) // 2, axis=0)))

    assert 0.7 <= float(np.median(true)) <= 0.9
    assert float(np.quantile(unrelated, 0.9)) < 0.3
