"""The ColPali adapter on a tiny model made here: real files, real loading, no hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, models, pre_tokenizers

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.pages.colpali import ColPaliEncoder
from contexture.documents import Page
from contexture.errors import SourceUnavailable, UnknownAdapter
from contexture.ledger import Trace
from contexture.pages.visual import VisualPages
from contexture.types import Scope
from support.visual_conformance import document

WORDS = ["<pad>", "<unk>", "one", "two", "red", "green", "blue"]
CHANNELS = {"red": 0, "green": 1, "blue": 2}
PATCHES = 32


def write_model(path: Path) -> None:
    """A model in which a word of a colour and a patch of that colour point the same way."""
    directions = np.eye(3, 128, dtype=np.float32)
    table = np.zeros((16, 128), np.float32)
    for word, channel in CHANNELS.items():
        table[WORDS.index(word)] = directions[channel]
    constants = {
        "table": table,
        "directions": directions,
        "modulus": np.array(16, np.int64),
        "flat": np.array([0, 3, PATCHES * PATCHES], np.int64),
        "room": np.array([0, 0, 0, 0, 6, 0], np.int64),
        "first": np.array([0], np.int64),
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("Mod", ["input_ids", "modulus"], ["words"]),
        helper.make_node("Gather", ["table", "words"], ["said"]),
        helper.make_node("AveragePool", ["pixel_values"], ["pooled"], kernel_shape=[14, 14], strides=[14, 14]),
        helper.make_node("Reshape", ["pooled", "flat"], ["flattened"]),
        helper.make_node("Transpose", ["flattened"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["patches", "directions"], ["coloured"]),
        helper.make_node("Pad", ["coloured", "room"], ["padded"]),
        helper.make_node("Shape", ["input_ids"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["padded", "first", "length", "axis"], ["shown"]),
        helper.make_node("Add", ["said", "shown"], ["output"]),
    ]
    texts = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    ]
    pixels = helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["batch", 3, 448, 448])
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tiny", [*texts, pixels], [output], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny page encoder and the files that fastembed reads."""
    path = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64, "pad_token": "<pad>"}))
    (path / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    size = {"height": 448, "width": 448}
    reading = {"image_processor_type": "SiglipImageProcessor", "do_resize": True, "size": size}
    scaling = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": False}
    (path / "preprocessor_config.json").write_text(json.dumps({**reading, **scaling}))
    write_model(path / "model.onnx")
    return path


def page(colour: str, box: tuple[int, int, int, int], number: int = 1) -> Page:
    """A black page of 448 by 448 with a coloured rectangle."""
    picture = Image.new("RGB", (448, 448))
    ImageDraw.Draw(picture).rectangle(box, fill=colour)
    file = BytesIO()
    picture.save(file, "PNG")
    return Page(number=number, text="", image=file.getvalue())


async def test_patches_and_words_meet_in_one_space(folder: Path):
    """The patch of the colour that a question names is its best row, and its box is where the colour stands."""
    encoder = ColPaliEncoder(str(folder))
    red, blue = await encoder.pages([page("red", (0, 0, 13, 13)), page("blue", (224, 420, 237, 433), 2)])
    (name,) = encoder.vectors
    asked = (await encoder.question("blue"))[name]
    best = int((blue.rows[name] @ asked.T).max(axis=1).argmax())

    assert blue.rows[name].shape == (1030, 128) == (len(blue.boxes), encoder.vectors[name])
    assert asked.shape == (1, 128)
    assert blue.boxes[best] == pytest.approx((16 / 32, 30 / 32, 17 / 32, 31 / 32))
    assert float((blue.rows[name] @ asked.T).max()) == pytest.approx(1, abs=1e-3)
    assert float((red.rows[name] @ asked.T).max()) < 0.1
    assert float(blue.whole[name] @ asked[0]) > float(red.whole[name] @ asked[0])


async def test_a_page_that_was_not_drawn_shows_nothing(folder: Path):
    """It has no rows, and the others of its batch do."""
    bare, drawn = await ColPaliEncoder(str(folder)).pages(
        [Page(number=1, text="words"), page("red", (0, 0, 99, 99), 2)]
    )

    assert (dict(bare.rows), bare.boxes, dict(bare.whole)) == ({}, (), {})
    assert len(drawn.boxes) == 1030


async def test_a_question_without_known_words_still_has_a_row(folder: Path):
    """Whatever is asked can be compared."""
    encoder = ColPaliEncoder(str(folder))
    (rows,) = (await encoder.question("purple \ud800")).values()

    assert rows.shape == (1, 128)


def test_similarities_are_clipped_until_they_are_fitted(folder: Path):
    """Without a calibration a MaxSim value stands for itself, and a negative one for nothing."""
    found = ColPaliEncoder(str(folder)).calibrate("any", np.array([-0.5, 0.25, 1.0], np.float32))

    assert found.tolist() == [0.0, 0.25, 1.0]


async def test_a_picture_that_is_none_is_named(folder: Path):
    """A broken file is the page's fault, and says which page."""
    with pytest.raises(SourceUnavailable, match="page 7"):
        await ColPaliEncoder(str(folder)).pages([Page(number=7, text="", image=b"no picture")])


async def test_broken_weights_surface_as_a_source_that_is_down(folder: Path, tmp_path: Path):
    """A model file that cannot be loaded is told as such when it is first needed."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(SourceUnavailable, match="could not load"):
        await ColPaliEncoder(str(tmp_path)).question("red")


def test_an_unknown_model_is_refused_at_once(tmp_path: Path):
    """Neither a name that is not in the catalogue nor a folder without a model is taken."""
    with pytest.raises(UnknownAdapter, match="qdrant/colpali"):
        ColPaliEncoder("no/such-model")
    with pytest.raises(UnknownAdapter, match=r"model\.onnx"):
        ColPaliEncoder(str(tmp_path))


def test_models_of_the_hub_are_known_before_they_are_fetched():
    """The length of their vectors comes from the catalogue."""
    assert list(ColPaliEncoder("Qdrant/colpali-v1.3-fp16").vectors.values()) == [128]


async def test_a_drawn_page_is_found_by_what_it_shows(folder: Path, new_folder: Callable[[], Path]):
    """Stored with their patches, pages are found by a colour, and the answer says where on the page it is."""
    encoder = ColPaliEncoder(str(folder))
    index = await EmbeddedIndex.open(new_folder(), EmbeddedOptions(vectors=encoder.vectors, threads=1))
    visual = VisualPages(index=index, encoder=encoder)
    drawn = [page("red", (0, 0, 97, 97)), page("blue", (224, 420, 251, 447), 2), Page(number=3, text="blue")]
    await visual.add(Scope.local(), document(pages=drawn))
    (seen,) = await visual.search(Scope.local(), "blue", k=5, where=None, trace=Trace())

    assert (seen.doc_id, seen.page) == ("d1", 2)
    assert seen.score > 0.9
    assert seen.box == pytest.approx((16 / 32, 30 / 32, 17 / 32, 31 / 32), abs=0.02)
    await index.close()
