"""Page encoder for page images: a ColPali-family model computes a vector for every patch of a page."""

import asyncio
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import isqrt
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from contexture.adapters.embedders.encoding import DEFAULT_CALIBRATION, Calibration, replace_lone_surrogates
from contexture.adapters.embedders.fastembed import LOAD_ERRORS, PAGE_MODEL_CATALOGUE, find_catalogue_entry, load_model
from contexture.adapters.pages.regions import WHOLE_PAGE, mean_direction
from contexture.documents import BoundingBox, EncodedPage, Page
from contexture.errors import SourceUnavailable, UnknownAdapter
from contexture.types import Matrix, Vector

GRID_MODEL_PREFIX = "qdrant/colpali"
"""Name prefix of models whose first rows are the patches of a square grid over the page, row by row."""


class ColPaliEncoder:
    """A late-interaction model of fastembed's catalogue, such as `Qdrant/colpali-v1.3-fp16`, from the hub or a folder.

    `model` is a catalogue name or a folder with the files of such a model. A page without an image gets no vectors.
    Similarities are plain MaxSim values unless a fitted `calibration` is given.
    """

    def __init__(
        self,
        model: str,
        *,
        cache_dir: Path | None = None,
        threads: int = 1,
        calibration: Calibration = DEFAULT_CALIBRATION,
    ) -> None:
        self._path = Path(model) if Path(model).is_dir() else None
        self._model = model if self._path is None else _find_model(self._path)
        self._dimensions = int(find_catalogue_entry(PAGE_MODEL_CATALOGUE, self._model)["dim"])
        self._name = f"colpali-{model if self._path is None else self._path.name}"
        self._cache_dir = cache_dir
        self._threads = threads
        self._calibration = calibration
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def vectors(self) -> Mapping[str, int]:
        """One vector space, named after the model or its folder: rename the folder when its weights change."""
        return {self._name: self._dimensions}

    async def pages(self, pages: Sequence[Page]) -> Sequence[EncodedPage]:
        """One encoded page per page, in order, computed in a worker thread."""
        return await asyncio.to_thread(lambda: [self._encode_page(page) for page in pages])

    async def question(self, text: str) -> Mapping[str, Matrix]:
        """One vector per token of the question."""
        return {self._name: await asyncio.to_thread(self._encode_question, replace_lone_surrogates(text))}

    def calibrate(self, name: str, similarity: Vector) -> Vector:  # noqa: ARG002 - there is one space
        """Map MaxSim values to similarities with the given calibration."""
        return self._calibration(similarity)

    def _encode_page(self, page: Page) -> EncodedPage:
        if not page.image:
            return EncodedPage(rows={}, boxes=(), whole={})
        rows = self._embed("embed_image", _load_image(page))
        return EncodedPage(
            rows={self._name: rows}, boxes=self._patch_boxes(len(rows)), whole={self._name: mean_direction(rows)}
        )

    def _encode_question(self, text: str) -> Matrix:
        rows = self._embed("embed_text", text)
        said = rows[np.linalg.norm(rows, axis=1) > 0]  # padding rows are zero
        return said if len(said) else rows[:1]

    def _embed(self, method: str, given: object) -> Matrix:
        """Unit vectors of one image or text."""
        try:
            (found,) = getattr(self._load_model(), method)([given], batch_size=1)
        except LOAD_ERRORS as failure:
            raise SourceUnavailable(f"{self._name!r} failed: {failure}") from failure
        rows = np.asarray(found, np.float32).reshape(-1, self._dimensions)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)

    def _patch_boxes(self, count: int) -> tuple[BoundingBox, ...]:
        side = isqrt(count) if self._model.lower().startswith(GRID_MODEL_PREFIX) else 0
        grid = [
            (column / side, line / side, (column + 1) / side, (line + 1) / side)
            for line in range(side)
            for column in range(side)
        ]
        return (*grid, *[WHOLE_PAGE] * (count - len(grid)))

    def _load_model(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = load_model(
                    PAGE_MODEL_CATALOGUE, self._model, cache_dir=self._cache_dir, path=self._path, threads=self._threads
                )
            return self._loaded


def _load_image(page: Page) -> Image.Image:
    try:
        return Image.open(BytesIO(page.image)).convert("RGB")
    except OSError as failure:
        raise SourceUnavailable(f"the picture of page {page.number} cannot be read: {failure}") from failure


def _find_model(path: Path) -> str:
    """Name of the catalogue model whose files a folder holds; raises `UnknownAdapter`."""
    known: dict[str, str] = {row["model"]: row["model_file"] for row in PAGE_MODEL_CATALOGUE.list_supported_models()}
    for model, file in known.items():
        if (path / file).is_file():
            return model
    raise UnknownAdapter(f"no page encoder is in {str(path)!r}: it needs one of {', '.join(sorted(known.values()))}")
