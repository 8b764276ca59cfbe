"""Pages seen as pictures: a ColPali-family model gives a vector for every patch of a page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import isqrt
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from contexture.adapters.embedders.calibration import UNFITTED, Calibration
from contexture.adapters.embedders.catalogue import FAILURES, PAGE_MODELS, entry, load
from contexture.adapters.embedders.texts import encodable
from contexture.adapters.pages.regions import mean_direction
from contexture.adapters.pages.rows import WHOLE
from contexture.documents import Box, Encoded, Page
from contexture.errors import SourceUnavailable, UnknownAdapter
from contexture.types import Matrix, Vector

GRID = "qdrant/colpali"
"""Models whose first rows are the patches of a square grid over the page, line by line."""


class ColPali:
    """A late-interaction model of fastembed's catalogue, such as `Qdrant/colpali-v1.3-fp16`, from the hub or a folder.

    `model` is a name of the catalogue or a folder with such a model's files. A page that was not drawn shows nothing.
    Similarities are plain MaxSim values unless a fitted `calibration` is given.
    """

    def __init__(
        self, model: str, *, cache_dir: Path | None = None, threads: int = 1, calibration: Calibration = UNFITTED
    ) -> None:
        self._path = Path(model) if Path(model).is_dir() else None
        self._model = model if self._path is None else _in_folder(self._path)
        self._dimensions = int(entry(PAGE_MODELS, self._model)["dim"])
        self._name = f"colpali-{model if self._path is None else self._path.name}"
        self._cache_dir = cache_dir
        self._threads = threads
        self._calibration = calibration
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def vectors(self) -> Mapping[str, int]:
        """One space, named for the model or its folder: rename the folder when its weights change."""
        return {self._name: self._dimensions}

    async def pages(self, pages: Sequence[Page]) -> Sequence[Encoded]:
        """One value per page, in order, computed in a worker thread."""
        return await asyncio.to_thread(lambda: [self._page(page) for page in pages])

    async def question(self, text: str) -> Mapping[str, Matrix]:
        """A row per token of the question."""
        return {self._name: await asyncio.to_thread(self._question, encodable(text))}

    def calibrate(self, name: str, similarity: Vector) -> Vector:  # noqa: ARG002 - there is one space
        """MaxSim values as the given calibration maps them."""
        return self._calibration(similarity)

    def _page(self, page: Page) -> Encoded:
        if not page.image:
            return Encoded(rows={}, boxes=(), whole={})
        rows = self._rows("embed_image", _picture(page))
        return Encoded(rows={self._name: rows}, boxes=self._boxes(len(rows)), whole={self._name: mean_direction(rows)})

    def _question(self, text: str) -> Matrix:
        rows = self._rows("embed_text", text)
        said = rows[np.linalg.norm(rows, axis=1) > 0]  # padding points nowhere
        return said if len(said) else rows[:1]

    def _rows(self, method: str, given: object) -> Matrix:
        """What the model makes of one picture or text, at length 1."""
        try:
            (found,) = getattr(self._running(), method)([given], batch_size=1)
        except FAILURES as failure:
            raise SourceUnavailable(f"{self._name!r} failed: {failure}") from failure
        rows = np.asarray(found, np.float32).reshape(-1, self._dimensions)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)

    def _boxes(self, count: int) -> tuple[Box, ...]:
        side = isqrt(count) if self._model.lower().startswith(GRID) else 0
        grid = [
            (column / side, line / side, (column + 1) / side, (line + 1) / side)
            for line in range(side)
            for column in range(side)
        ]
        return (*grid, *[WHOLE] * (count - len(grid)))

    def _running(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = load(
                    PAGE_MODELS, self._model, cache_dir=self._cache_dir, path=self._path, threads=self._threads
                )
            return self._loaded


def _picture(page: Page) -> Image.Image:
    try:
        return Image.open(BytesIO(page.image)).convert("RGB")
    except OSError as failure:
        raise SourceUnavailable(f"the picture of page {page.number} cannot be read: {failure}") from failure


def _in_folder(path: Path) -> str:
    """The model of the catalogue whose files a folder holds."""
    known: dict[str, str] = {row["model"]: row["model_file"] for row in PAGE_MODELS.list_supported_models()}
    for model, file in known.items():
        if (path / file).is_file():
            return model
    raise UnknownAdapter(f"no page encoder is in {str(path)!r}: it needs one of {', '.join(sorted(known.values()))}")
