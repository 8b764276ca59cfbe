"""onnxruntime sessions for the embedders, and whether this processor multiplies int8 exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

QUANTIZED_MATMUL = "DynamicQuantizeMatMul"
ONNX_DOMAIN = "com.microsoft"
OPSET = 17
IR_VERSION = 8

_PROBE_LENGTH = 64
_MAX_INT8 = 127


class OnnxSession(Protocol):
    """A loaded ONNX model; several threads may run it at once."""

    def run(
        self, outputs: None, feed: Mapping[str, npt.NDArray[np.int64] | npt.NDArray[np.float32]]
    ) -> Sequence[npt.NDArray[np.float32]]:
        """Run the model on these inputs and return all outputs."""
        ...


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


def serialize_graph(graph: Any) -> bytes:
    """A graph as a serialized model that may use onnxruntime's own operators."""
    helper: Any = import_module("onnx").helper
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(ONNX_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION).SerializeToString()


def _overflow_probe_model() -> bytes:
    """Model with a single quantized product: a row times a column of the largest int8 values."""
    onnx: Any = import_module("onnx")
    number, helper = onnx.TensorProto.FLOAT, onnx.helper
    weights = onnx.numpy_helper.from_array(np.full((_PROBE_LENGTH, 1), _MAX_INT8, np.int8), "weights")
    scale = onnx.numpy_helper.from_array(np.ones(1, np.float32), "scale")
    return serialize_graph(
        helper.make_graph(
            [helper.make_node(QUANTIZED_MATMUL, ["row", "weights", "scale"], ["product"], domain=ONNX_DOMAIN)],
            "product",
            [helper.make_tensor_value_info("row", number, [1, _PROBE_LENGTH])],
            [helper.make_tensor_value_info("product", number, [1, 1])],
            [weights, scale],
        )
    )
