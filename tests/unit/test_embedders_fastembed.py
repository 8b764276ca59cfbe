"""The fastembed adapters on tiny models made here: real files, real loading, no hub."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from contexture.adapters.embedders.fastembed import FastEmbedEmbedder, FastEmbedReranker
from contexture.errors import SourceUnavailable
from contexture.testing.embedders import EmbedderConformance

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ferry", "island", "harbour", "revenue"]
EMBEDDER = "BAAI/bge-small-en-v1.5"
RERANKER = "Xenova/ms-marco-MiniLM-L-6-v2"


def write_tokenizer(folder: Path) -> None:
    """A word-level tokenizer with the files that fastembed reads."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, WORDS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64, "pad_token": "[PAD]"}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))


def write_model(path: Path, width: int, axes: list[int]) -> None:
    """A model that sums rows of a fixed table over the tokens."""
    table = np.random.default_rng(1).standard_normal((len(WORDS), width)).astype(np.float32)
    table[0] = 0
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axes"], ["output"], keepdims=0),
    ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in names]
    graph = helper.make_graph(
        nodes,
        "tiny",
        inputs,
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array(axes, np.int64), "axes")],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


@pytest.fixture
def embedder_folder(tmp_path: Path) -> Path:
    """A folder with a tiny embedding model."""
    write_tokenizer(tmp_path)
    write_model(tmp_path / "model_optimized.onnx", 384, [1])
    return tmp_path


@pytest.fixture
def reranker_folder(tmp_path: Path) -> Path:
    """A folder with a tiny cross-encoder of one logit."""
    write_tokenizer(tmp_path)
    write_model(tmp_path / "onnx" / "model.onnx", 1, [1])
    return tmp_path


class TestFastEmbed(EmbedderConformance):
    """An embedder from a local folder keeps the contract."""

    @pytest.fixture
    def embedder(self, embedder_folder: Path) -> FastEmbedEmbedder:
        """The tiny model."""
        return FastEmbedEmbedder(EMBEDDER, path=embedder_folder)


async def test_words_decide_the_vector(embedder_folder: Path) -> None:
    """The model that runs is the one in the folder: equal words in another order give the same vector."""
    embedder = FastEmbedEmbedder(EMBEDDER, path=embedder_folder)
    embedder.warm()
    ferry, turned, other = await embedder.embed(["ferry island", "island ferry", "revenue"])

    assert ferry @ turned > 0.999
    assert ferry @ other < 0.9


@pytest.mark.parametrize("kind", [FastEmbedEmbedder, FastEmbedReranker])
async def test_a_folder_without_a_model_is_an_unavailable_source(kind, tmp_path: Path) -> None:
    """A folder that is missing, empty or holds a broken model is reported with the model's name."""
    model = EMBEDDER if kind is FastEmbedEmbedder else RERANKER
    broken = tmp_path / "broken"
    for file in ("model_optimized.onnx", "onnx/model.onnx"):
        (broken / file).parent.mkdir(parents=True, exist_ok=True)
        (broken / file).write_bytes(b"not a model")
    for path in (tmp_path / "gone", tmp_path, broken):
        adapter = kind(model, path=path)
        with pytest.raises(SourceUnavailable, match=model):
            await (adapter.embed(["x"]) if kind is FastEmbedEmbedder else adapter.rerank("x", ["y"]))


async def test_a_reranker_scores_each_text_by_itself(reranker_folder: Path) -> None:
    """Scores lie between 0 and 1, differ by text, and do not depend on the other texts."""
    reranker = FastEmbedReranker(RERANKER, path=reranker_folder)
    texts = ["ferry island", "revenue revenue revenue", "", "\ud800"]
    together = await reranker.rerank("harbour", texts)
    alone = [(await reranker.rerank("harbour", [text]))[0] for text in texts]

    assert alone == list(together)
    assert all(0 <= score <= 1 for score in together)
    assert len({round(score, 6) for score in together[:3]}) == 3
    assert [] == list(await reranker.rerank("harbour", []))
