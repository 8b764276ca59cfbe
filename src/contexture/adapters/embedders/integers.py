"""Lets a model whose weights are stored as bytes multiply bytes, where the processor does so without loss."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contexture.adapters.embedders.onnx import session

_PRODUCT = "DynamicQuantizeMatMul"
_DOMAIN = "com.microsoft"
_LENGTH = 64
_LARGEST = 127


class _Weights(NamedTuple):
    """Names in a model: of weights stored as bytes, of their scale, and of the numbers they were widened to."""

    bytes: str
    scale: str
    widened: tuple[str, str]


def with_integer_products(path: Path) -> bytes:
    """The model in `path`, its products with weights that are widened from bytes computed on the bytes themselves.

    The other factor is rounded to bytes too, with one scale for a whole input: inputs that share a run share it.
    """
    onnx: Any = import_module("onnx")
    model = onnx.load(str(path))
    graph = model.graph
    makers = {output: node for node in graph.node for output in node.output}
    stored = {each.name: each for each in graph.initializer}
    found = {node.output[0]: weights for node in graph.node if (weights := _bytes_of(node, makers, stored))}
    nodes = [_product(onnx, node, found[node.output[0]]) if node.output[0] in found else node for node in graph.node]
    for weights in found.values():
        del stored[weights.scale].dims[:-1]  # one number a column
    spared = {output for weights in found.values() for output in weights.widened}
    del graph.node[:]
    graph.node.extend(node for node in nodes if spared.isdisjoint(node.output))
    model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return model.SerializeToString()


def multiplies_exactly() -> bool:
    """Whether products of bytes are whole here; processors without the right instructions cut large sums off."""
    row = np.ones((1, _LENGTH), np.float32)
    product = session(_largest(), threads=1).run(None, {"row": row})[0]
    return round(float(product[0, 0])) == _LARGEST * _LENGTH


def _largest() -> bytes:
    """A model with nothing but one such product: a row times a column of the largest bytes."""
    onnx: Any = import_module("onnx")
    number, helper = onnx.TensorProto.FLOAT, onnx.helper
    weights = onnx.numpy_helper.from_array(np.full((_LENGTH, 1), _LARGEST, np.int8), "weights")
    scale = onnx.numpy_helper.from_array(np.ones(1, np.float32), "scale")
    graph = helper.make_graph(
        [helper.make_node(_PRODUCT, ["row", "weights", "scale"], ["product"], domain=_DOMAIN)],
        "product",
        [helper.make_tensor_value_info("row", number, [1, _LENGTH])],
        [helper.make_tensor_value_info("product", number, [1, 1])],
        [weights, scale],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def _bytes_of(node: Any, makers: Mapping[str, Any], stored: Mapping[str, Any]) -> _Weights | None:
    """The bytes behind the second factor of a product; None where it is anything else."""
    scaled = makers.get(node.input[1]) if node.op_type == "MatMul" else None
    cast = makers.get(scaled.input[0]) if scaled is not None and scaled.op_type == "Mul" else None
    if scaled is None or cast is None or cast.op_type != "Cast" or cast.input[0] not in stored:
        return None
    return _Weights(cast.input[0], scaled.input[1], (cast.output[0], scaled.output[0]))


def _product(onnx: Any, node: Any, weights: _Weights) -> Any:
    factors = [node.input[0], weights.bytes, weights.scale]
    return onnx.helper.make_node(_PRODUCT, factors, list(node.output), name=node.name, domain=_DOMAIN)
