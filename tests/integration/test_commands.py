"""Commands over the sample news, with the real embedders and name models."""

from __future__ import annotations

import pytest

import contexture
from contexture import Settings
from contexture.cli.demo import TENANT, demo_scope, load_samples
from contexture.retrieval.citations import verify_citations

pytestmark = pytest.mark.integration

LINES = (
    '/ask "How many dockers are on strike, and what does the port say?" window=1w',
    '/events topic="port strike in Northquay" window=1w',
    '/graph query="Ilse Marrow and Tobias Quill" window=2w hops=3',
    '/synthesize topic="dockers strike in the port" window=1w',
    '/synthesize тема="забастовка докеров" window=1w',
    '/memory store "dockers strike"',
    "/memory recall dockers strike",
    "/memory suggest dockers strike",
)


@pytest.fixture(scope="module")
def home(lasting_folder):
    """One folder for all: loading embeds a hundred articles."""
    return lasting_folder()


@pytest.fixture
async def engine(home):
    """An engine over the samples."""
    async with contexture.open(Settings(home=home, tenant=TENANT, user="demo")) as found:
        await load_samples(found)
        yield found


async def test_every_command_answers_with_evidence_that_resolves(engine):
    """Seven commands in two languages: each statement leads back to an article or to a memory."""
    for line in LINES:
        answer = await engine.execute.run({"raw_command": line}, scope=demo_scope("demo"))
        cited = [each.citation for each in answer.evidence]

        assert answer.statements, line
        assert all(each.evidence for each in answer.statements), line
        assert [] == await verify_citations(engine.index, demo_scope("demo"), cited), line


@pytest.mark.parametrize(
    ("line", "lang"),
    [('/synthesize topic="dockers strike in the port" window=1w', "en"), ("/synthesize забастовка в порту 1w", "ru")],
)
async def test_twelve_hundred_and_nine_hundred_strikers_are_a_conflict(engine, line, lang):
    """The port and the union count differently, in both languages."""
    answer = await engine.execute.run({"raw_command": line}, scope=demo_scope("demo"))
    (strikers,) = [each for each in answer.details.conflicts if each.about == "people"]

    assert lang == answer.lang
    assert any("900" in side.text for side in strikers.sides)
    assert any("200" in side.text for side in strikers.sides)


async def test_the_graph_is_there_after_a_restart(engine, home):
    """What one process has read another need not read."""
    line = '/graph query="Ilse Marrow" window=2w'
    learnt = await engine.execute.run({"raw_command": line}, scope=demo_scope("demo"))
    await engine.close()
    async with contexture.open(Settings(home=home, tenant=TENANT, user="demo")) as again:
        kept = await again.execute.run({"raw_command": f"{line} build_policy=cached_only"}, scope=demo_scope("demo"))

    assert "Ilse Marrow" in {each.name for each in kept.details.entities}
    assert {each.name for each in kept.details.entities} >= {"Ilse Marrow", "Tobias Quill"}
    assert learnt.details.paths
