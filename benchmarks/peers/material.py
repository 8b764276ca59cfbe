"""What every contestant is given: the same records, vectors and questions, in a folder that any environment can read.

Nothing here needs Contexture: the other libraries run in an environment of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

TOKENS = 2_000
POOL = 33
"""Documents asked for: as many as Contexture looks at for a budget of 2,000 tokens."""

INSTRUCTION = "Answer the question from the material below."

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Document:
    """A record as the others store it: one text, whose first line is its title."""

    id: str
    text: str
    lang: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, its language, and the ids of the records that answer it, where they are known."""

    id: str
    text: str
    lang: str
    gold: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Material:
    """Documents with one vector each, questions to measure with one vector each, and questions to warm up with."""

    documents: Sequence[Document]
    vectors: Rows
    questions: Sequence[Asked]
    warm_up: Sequence[Asked]
    asked: Rows

    @property
    def by_text(self) -> dict[str, Rows]:
        """The vector of every question by its text."""
        return {each.text: row for each, row in zip([*self.questions, *self.warm_up], self.asked, strict=True)}


def write(folder: Path, material: Material) -> None:
    """Keep material in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("documents", "questions", "warm_up"):
        lines = [json.dumps(asdict(row), ensure_ascii=False) for row in getattr(material, name)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    np.save(folder / "vectors.npy", material.vectors)
    np.save(folder / "asked.npy", material.asked)


def read(folder: Path) -> Material:
    """What `write` kept."""
    return Material(
        documents=[Document(**row) for row in _rows(folder / "documents.jsonl")],
        vectors=np.load(folder / "vectors.npy"),
        questions=questions_in(folder, "questions"),
        warm_up=questions_in(folder, "warm_up"),
        asked=np.load(folder / "asked.npy"),
    )


def questions_in(folder: Path, name: str) -> list[Asked]:
    """The questions that `write` kept under a name."""
    rows = _rows(folder / f"{name}.jsonl")
    return [Asked(row["id"], row["text"], row["lang"], tuple(row["gold"])) for row in rows]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
