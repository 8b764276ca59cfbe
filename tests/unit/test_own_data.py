"""A caller's own personal data: placeholders in every prompt, the values in the answer where the operator allows it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.answer.chat_types import ChatRequest, ChatResult, Delta
from contexture.answer.completions import Completion, CompletionRequest, Completions
from contexture.answer.route import ModelRoute
from contexture.config import Settings
from contexture.pipeline.redaction import Placeholders, StreamingRestore
from contexture.testing.doubles import ScriptedChatModel
from support.service import small_engine, use_in_chat

SAID = "My address is anna@example.org. What is it?"


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_answer_shows_the_value_and_no_prompt_does(new_folder: Callable[[], Path], *, allowed: bool) -> None:
    """Whole and streamed, in a chat and in a completion."""
    async with small_engine(Settings(home=new_folder(), show_own_data=allowed)) as engine:
        model = ScriptedChatModel(["It is <EMAIL_1>."] * 4)
        use_in_chat(engine, route=ModelRoute({"scripted": model}))
        asked = ChatRequest(message=SAID)
        whole = await engine.chat.run(asked, scope=engine.scope)
        steps = [each async for each in engine.chat.stream(asked, scope=engine.scope)]
        completions = Completions(engine.chat)
        request = CompletionRequest(messages=({"role": "user", "content": SAID},))
        completed = await completions.run(request, scope=engine.scope)
        pieces = [each async for each in completions.stream(request, scope=engine.scope)]
    answers = [
        whole.reply,
        "".join(each.text for each in steps if isinstance(each, Delta)),
        next(each.reply for each in steps if isinstance(each, ChatResult)),
        completed.choice["message"]["content"],
        next(each.choice["message"]["content"] for each in pieces if isinstance(each, Completion)),
    ]

    assert ["It is anna@example.org." if allowed else "It is <EMAIL_1>."] * 5 == answers
    assert not any("anna@example.org" in str(messages) for messages in model.asked)


@given(cuts=st.lists(st.integers(0, 60), max_size=6))
def test_a_stream_is_restored_like_the_whole_text(cuts: list[int]) -> None:
    """However it is split; what only looks like a placeholder stays."""
    hidden = Placeholders()
    text = f"1 < 2, <b>, mail {hidden.hide('EMAIL', 'anna@example.org')} or <EMAIL_7> <EM"
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    stream = StreamingRestore(hidden.restore)
    shown = [stream.feed(text[start:end]) for start, end in pairwise(places)]

    assert hidden.restore(text) == "".join([*shown, stream.flush()])
