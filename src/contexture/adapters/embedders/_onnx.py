"""Embedders that run by onnxruntime: `OnnxEmbedder`, sessions, and whether this processor multiplies int8 exactly."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from contexture.adapters.embedders import encoding
from contexture.adapters.embedders._onnx_graph import ONNXRUNTIME_DOMAIN, OnnxGraph
from contexture.types import Matrix, Vector

QUANTIZED_MATMUL = "DynamicQuantizeMatMul"

DIMENSIONS = 384

# Longer texts are truncated before tokenization: 512 wordpieces of ordinary prose are much shorter than this.
MAX_CHARACTERS = 8_192

_PROBE_LENGTH = 64
_MAX_INT8 = 127

TokenIds = npt.NDArray[np.int64]


class OnnxSession(Protocol):
    """A loaded ONNX model; several threads may run it at once."""

    def run(
        self, outputs: None, feed: Mapping[str, npt.NDArray[np.int64] | npt.NDArray[np.float32]]
    ) -> Sequence[npt.NDArray[np.float32]]:
        """Run the model on these inputs and return all outputs."""
        ...


class SentenceModel(ABC):
    """A loaded tokenizer and session; a model says in `run` how the states of its tokens become a vector."""

    def __init__(self, tokenize: Callable[[str], list[int]], session: OnnxSession) -> None:
        self._tokenize = tokenize
        self.session = session

    @abstractmethod
    def run(self, ids: TokenIds) -> Vector:
        """The vector of one text, of any length; texts in one run would share a quantization scale."""

    def embed(self, texts: list[str]) -> Matrix:
        """One unit vector per text, in order."""
        return np.stack([encoding.normalize_vector(self.run(self._encode(text))) for text in texts])

    def _encode(self, text: str) -> TokenIds:
        return np.array([self._tokenize(encoding.replace_lone_surrogates(text[:MAX_CHARACTERS]))], np.int64)


class OnnxEmbedder:
    """A sentence embedder with 384 dimensions, computed in process; the model is loaded on first use."""

    def __init__(self, name: str, calibration: encoding.Calibration, load: Callable[[], SentenceModel]) -> None:
        self._name = name
        self._calibration = calibration
        self._load = load
        self._loading = Lock()
        self._loaded: SentenceModel | None = None

    @property
    def name(self) -> str:
        """Name of the model; identifies weights, truncation and pooling."""
        return self._name

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return DIMENSIONS

    def warm(self) -> None:
        """Load the model now, so that the first query does not wait for it."""
        self._load_model().embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit vector per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._embed, list(texts))

    def calibrate(self, cosine: Vector) -> Vector:
        """Map cosines to similarities from 0 to 1."""
        return self._calibration(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        return self._load_model().embed(texts)

    def _load_model(self) -> SentenceModel:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded


def open_onnx_session(model: Path | bytes, *, threads: int) -> OnnxSession:
    """Open an onnxruntime session for a model file or its bytes, with `threads` per run and without warnings."""
    runtime: Any = import_module("onnxruntime")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spinning idle threads would take CPU time from the index.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(
        model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
    )


def multiplies_exactly() -> bool:
    """Whether this processor multiplies int8 exactly; some saturate on large sums."""
    row = np.ones((1, _PROBE_LENGTH), np.float32)
    product = open_onnx_session(_overflow_probe_model(), threads=1).run(None, {"row": row})[0]
    return round(float(product[0, 0])) == _MAX_INT8 * _PROBE_LENGTH


def _overflow_probe_model() -> bytes:
    """Model with a single quantized product: a row times a column of the largest int8 values."""
    graph = OnnxGraph()
    row = graph.add_input("row", np.float32, [1, _PROBE_LENGTH])
    weights = graph.add_weights("weights", np.full((_PROBE_LENGTH, 1), _MAX_INT8, np.int8))
    scale = graph.add_weights("scale", np.ones(1, np.float32))
    product = graph.add_node(QUANTIZED_MATMUL, row, weights, scale, domain=ONNXRUNTIME_DOMAIN)
    graph.add_output("product", product, [1, 1])
    return graph.encode()
