"""Embedders and rerankers from fastembed's catalogues, loaded from its hub cache or a local folder.

Needs `contexture-ai[fastembed]`.
"""

import asyncio
import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from contexture.adapters.embedders import encoding
from contexture.errors import SourceUnavailable, UnknownAdapter
from contexture.types import Matrix, Vector

try:
    _fastembed: Any = import_module("fastembed")
    _rerank: Any = import_module("fastembed.rerank.cross_encoder")
    _runtime: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
except ImportError as missing:
    raise ImportError('fastembed models need fastembed: pip install "contexture-ai[fastembed]"') from missing


EMBEDDER_CATALOGUE: Any = _fastembed.TextEmbedding
RERANKER_CATALOGUE: Any = _rerank.TextCrossEncoder
PAGE_MODEL_CATALOGUE: Any = _fastembed.LateInteractionMultimodalEmbedding

# onnxruntime errors have no common base class.
LOAD_ERRORS = (ValueError, OSError, _runtime.NoSuchFile, _runtime.InvalidProtobuf, _runtime.InvalidGraph, _runtime.Fail)


def find_catalogue_entry(catalogue: Any, model: str) -> dict[str, Any]:
    """Catalogue entry of a model; raises `UnknownAdapter` with the known names."""
    known: dict[str, dict[str, Any]] = {row["model"].lower(): row for row in catalogue.list_supported_models()}
    if model.lower() not in known:
        raise UnknownAdapter(f"fastembed has no model {model!r}; it has {', '.join(sorted(known))}")
    return known[model.lower()]


def load_model(catalogue: Any, model: str, *, cache_dir: Path | None, path: Path | None, threads: int) -> Any:
    """Load a model from `path`, else from `cache_dir`, else download it there; raises `SourceUnavailable`."""
    if path is not None and not path.is_dir():
        raise SourceUnavailable(f"there is no folder {path} to load {model!r} from")
    try:
        return catalogue(
            model,
            cache_dir=None if cache_dir is None else str(cache_dir),
            threads=threads,
            specific_model_path=None if path is None else str(path),
        )
    except LOAD_ERRORS as failure:
        raise SourceUnavailable(f"fastembed could not load {model!r}: {failure}") from failure


class FastEmbedEmbedder:
    """A model of fastembed's catalogue, such as `BAAI/bge-small-en-v1.5`.

    `path` is a folder with the model's files; without it they are read from `cache_dir`, and downloaded there if
    missing. Every text runs by itself: many of these models are quantized with one scale per batch, so a vector would
    depend on the other texts. Similarities are plain cosines unless a fitted `calibration` is given.
    """

    def __init__(
        self,
        model: str,
        *,
        cache_dir: Path | None = None,
        path: Path | None = None,
        threads: int = 1,
        calibration: encoding.Calibration = encoding.DEFAULT_CALIBRATION,
    ) -> None:
        self._model = model
        self._dimensions = int(find_catalogue_entry(EMBEDDER_CATALOGUE, model)["dim"])
        self._cache_dir = cache_dir
        self._path = path
        self._threads = threads
        self._calibration = calibration
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """The catalogue name, marked as run by fastembed."""
        return f"fastembed-{self._model}"

    @property
    def dimensions(self) -> int:
        """Length of every vector, from the catalogue."""
        return self._dimensions

    def warm(self) -> None:
        """Load the model now, downloading it if necessary."""
        self._embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit vector per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._embed, [encoding.replace_lone_surrogates(text) for text in texts])

    def calibrate(self, cosine: Vector) -> Vector:
        """Map cosines to similarities with the given calibration."""
        return self._calibration(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        rows = np.empty((len(texts), self._dimensions), np.float32)
        for row, vector in enumerate(self._load_once().embed(texts, batch_size=1)):
            rows[row] = encoding.normalize_vector(np.asarray(vector, np.float32))
        return rows

    def _load_once(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = load_model(
                    EMBEDDER_CATALOGUE, self._model, cache_dir=self._cache_dir, path=self._path, threads=self._threads
                )
            return self._loaded


class FastEmbedReranker:
    """A cross-encoder of fastembed's catalogue, such as `Xenova/ms-marco-MiniLM-L-6-v2`.

    Scores are the logistic function of the model's output, so they increase with it and lie between 0 and 1.
    Every pair runs by itself, so a score does not depend on the other texts.
    """

    def __init__(
        self, model: str, *, cache_dir: Path | None = None, path: Path | None = None, threads: int = 1
    ) -> None:
        self._model = str(find_catalogue_entry(RERANKER_CATALOGUE, model)["model"])
        self._cache_dir = cache_dir
        self._path = path
        self._threads = threads
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """The catalogue name, marked as run by fastembed."""
        return f"fastembed-{self._model}"

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One score between 0 and 1 per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(
            self._rerank,
            encoding.replace_lone_surrogates(query),
            [encoding.replace_lone_surrogates(text) for text in texts],
        )

    def _rerank(self, query: str, texts: list[str]) -> list[float]:
        return [_logistic(float(score)) for score in self._load_once().rerank(query, texts, batch_size=1)]

    def _load_once(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = load_model(
                    RERANKER_CATALOGUE, self._model, cache_dir=self._cache_dir, path=self._path, threads=self._threads
                )
            return self._loaded


def _logistic(score: float) -> float:
    # This form does not overflow for large positive or negative scores.
    return 0.5 * (1.0 + math.tanh(score / 2.0))
