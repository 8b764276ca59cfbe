"""Embedders that run by onnxruntime: `OnnxEmbedder`, sessions, and the small models that they write.

`OnnxGraph` collects nodes and weights, and encodes them as the protocol buffer of ONNX. Only what the embedders use is
written: float, int8 and int64 tensors, and attributes that are numbers or lists of integers. The package `onnx` would
do the same and is 25 MB.
"""

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from contexture.adapters.embedders import encoding
from contexture.types import Matrix, Vector

IR_VERSION = 8
OPSET = 17
ONNXRUNTIME_DOMAIN = "com.microsoft"
"""The operators that onnxruntime adds to those of ONNX."""

Shape = Sequence[int | str]
"""Sizes of a tensor; a name stands for a size that differs from run to run."""

Attributes = Mapping[str, int | float | Sequence[int]]
"""Settings of an operation by name."""

_FLOAT, _INT8, _INT64 = 1, 3, 7
_TENSOR_TYPES: dict[np.dtype[Any], int] = {
    np.dtype(np.float32): _FLOAT,
    np.dtype(np.int8): _INT8,
    np.dtype(np.int64): _INT64,
}
_SEVEN_BITS = 0x7F
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE, _INTS_ATTRIBUTE = 1, 2, 7


class OnnxGraph:
    """An ONNX graph under construction; nodes run in the order in which they are added."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._weights: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def add_input(self, name: str, dtype: npt.DTypeLike, shape: Shape) -> str:
        """Declare an input, and return its name."""
        self._inputs.append(_encode_value(name, _TENSOR_TYPES[np.dtype(dtype)], shape))
        return name

    def add_output(self, name: str, source: str, shape: Shape) -> None:
        """Declare a float output that has the value of `source`."""
        self._nodes.append(_encode_node("Identity", [source], [name], "", {}))
        self._outputs.append(_encode_value(name, _FLOAT, shape))

    def add_weights(self, name: str, values: npt.ArrayLike) -> str:
        """Store a constant tensor, and return its name."""
        array = np.ascontiguousarray(values)
        self._weights.append(
            b"".join(_number(1, size) for size in np.shape(values))
            + _number(2, _TENSOR_TYPES[array.dtype])
            + _text(8, name)
            + _field(9, array.tobytes())
        )
        return name

    def add_node(self, operator: str, *inputs: str, domain: str = "", attributes: Attributes | None = None) -> str:
        """Add an operation, and return the name of its output."""
        output = f"{operator} {len(self._nodes)}"
        self._nodes.append(_encode_node(operator, inputs, [output], domain, attributes or {}))
        return output

    def add_split(self, source: str, sizes: str, outputs: Sequence[str]) -> None:
        """Split a tensor along its last axis into outputs of the sizes in the tensor `sizes`."""
        self._nodes.append(_encode_node("Split", [source, sizes], outputs, "", {"axis": -1}))

    def encode(self) -> bytes:
        """The model as bytes."""
        graph = b"".join(
            [
                *(_field(1, node) for node in self._nodes),
                _text(2, "graph"),
                *(_field(5, tensor) for tensor in self._weights),
                *(_field(11, value) for value in self._inputs),
                *(_field(12, value) for value in self._outputs),
            ]
        )
        operators = (("", OPSET), (ONNXRUNTIME_DOMAIN, 1))
        sets = b"".join(_field(8, _text(1, domain) + _number(2, version)) for domain, version in operators)
        return _number(1, IR_VERSION) + _field(7, graph) + sets


def _encode_node(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    domain: str,
    attributes: Attributes,
) -> bytes:
    return b"".join(
        [
            *(_text(1, name) for name in inputs),
            *(_text(2, name) for name in outputs),
            _text(4, operator),
            *(_field(5, _text(1, name) + _encode_attribute(value)) for name, value in attributes.items()),
            _text(7, domain),
        ]
    )


def _encode_attribute(value: float | Sequence[int]) -> bytes:
    match value:
        case float():
            return _key(2, 5) + struct.pack("<f", value) + _number(20, _FLOAT_ATTRIBUTE)
        case int():
            return _number(3, value) + _number(20, _INT_ATTRIBUTE)
        case _:
            return b"".join(_number(8, each) for each in value) + _number(20, _INTS_ATTRIBUTE)


def _encode_value(name: str, kind: int, shape: Shape) -> bytes:
    sizes = b"".join(_field(1, _text(2, size) if isinstance(size, str) else _number(1, size)) for size in shape)
    return _text(1, name) + _field(2, _field(1, _number(1, kind) + _field(2, sizes)))


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())


def _field(field: int, data: bytes) -> bytes:
    return _key(field, 2) + bytes(_varint(len(data))) + data


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + bytes(_varint(value % (1 << 64)))  # negative numbers in two's complement


def _key(field: int, wire_type: int) -> bytes:
    return bytes(_varint(field << 3 | wire_type))


def _varint(value: int) -> Iterator[int]:
    while value > _SEVEN_BITS:
        yield value & _SEVEN_BITS | 0x80
        value >>= 7
    yield value


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
