"""Questions over the samples that need two kinds of sources at once, with the real embedders."""

from __future__ import annotations

import pytest

from contexture.builders.ask.request import AskRequest
from contexture.cli.demo import demo_settings, load_samples
from contexture.config import Settings
from contexture.engine import open_store
from contexture.testing.doubles import NOON
from support.two_kinds import QUESTIONS

BUDGET, ENOUGH = 2_000, 41


@pytest.mark.slow
@pytest.mark.integration
async def test_questions_that_need_two_kinds_have_both(new_folder):
    """Of 45 questions nearly all have both passages that they need in a prompt of 2,000 tokens."""
    lacking = []
    async with open_store(demo_settings(Settings(home=new_folder()))) as engine:
        await load_samples(engine)
        await engine.warm_embedders()
        for question, *needs in QUESTIONS:
            built = await engine.build_ask(AskRequest(query=question, max_tokens=BUDGET), now=NOON)
            assert built.tokens <= BUDGET
            held = [
                any(want.is_met_by(each.kind.value, {each.id, each.label}, each.text) for each in built.sources)
                for want in needs
            ]
            if not all(held):
                lacking.append(question)

    assert len(QUESTIONS) - len(lacking) >= ENOUGH, lacking
