"""Commands over the sample news and over articles written for the tests answer as the transcripts beside this file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

import contexture
from contexture import Article, Contexture, Scope, Settings
from contexture.answer.commands.answer import CommandAnswer, render_answer
from contexture.cli._demo_samples import load_sample_news
from contexture.cli.demo import news_folder
from contexture.testing.doubles import NOON

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

HERE = Path(__file__).parent
AGENCIES = HERE.parent / "support" / "articles" / "russian_agencies.jsonl"
READER = Scope(tenant="demo", user="reader")
LINES = {
    "english": (
        "/ask latest news window=24h",
        '/ask "How many dockers are on strike, and what does the port say?" window=1w',
        '/ask "What happened to the Nordlink-B cable?" window=2w',
        '/ask "Who robbed the bank in Lisbon?" window=1w',
        '/events topic="port strike in Northquay" window=2w',
        '/events topic="rocket Albatross-2" window=1m',
        '/synthesize topic="dockers strike in the port" window=1w',
        '/synthesize topic="costs of the harbour bridge" window=2w',
        '/graph query="Ilse Marrow" window=2w',
        '/graph query="Ilse Marrow and Tobias Quill" window=2w',
        '/memory store "dockers strike"',
        "/memory recall dockers strike",
        '/memory suggest query="mayoral election in Vellmar" window=2w',
    ),
    "russian": (
        "/ask последние новости window=24h",
        '/ask "Сколько докеров бастует и что говорит порт?" window=1w',
        '/ask "Что решил Банк России?" window=3m',
        '/ask "Когда вышел новый альбом Земфиры?" window=1w',
        "/events забастовка докеров window=2w",
        "/events лесной пожар под Читой window=3m",
        "/synthesize тема=«забастовка в порту Нортки» окно=1н",
        "/synthesize тема=«мост через гавань» окно=2н",
        "/graph Марроу window=2w",
        "/graph Как связаны Ильза Марроу и Тобиас Квилл? window=2w",
        "/memory store забастовка докеров",
        "/memory recall забастовка докеров",
        "/memory suggest выборы мэра Вельмара window=2w",
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(lasting_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """The sample news as of noon, and articles as Russian agencies print them."""
    settings = Settings(home=lasting_folder(), tenant=READER.tenant, user=READER.user)
    async with contexture.open(settings) as found:
        await load_sample_news(found, news_folder(), READER, NOON)
        await found.news.add(
            READER, [read_article(line) for line in AGENCIES.read_text("utf-8").splitlines()], now=NOON
        )
        yield found


def read_article(line: str) -> Article:
    """An article of a file of `support/articles`."""
    row = json.loads(line)
    return Article(
        article_id=row["id"],
        title=row["title"],
        text=row["text"],
        source=row["source"],
        published=datetime.fromisoformat(row["date"]).replace(tzinfo=UTC),
    )


def transcribe(line: str, answer: CommandAnswer) -> str:
    """A command, its answer, and where each cited piece of evidence is from."""
    cited = {number for statement in answer.statements for number in statement.evidence}
    places = [
        f"[{each.number}] {each.source} {each.date} {each.title}".rstrip()
        for each in answer.evidence
        if each.number in cited
    ]
    return "\n".join([f"> {line}", "", render_answer(answer), *([""] if places else []), *places, ""])


@pytest.mark.parametrize("name", LINES)
async def test_commands_answer_as_transcribed(engine: Contexture, name: str, update_golden: bool) -> None:  # noqa: FBT001 - a fixture
    """Every statement, note and source is that of the transcript, which was read as an editor would."""
    told = [
        transcribe(line, await engine.execute.run({"raw_command": line}, scope=READER, now=NOON))
        for line in LINES[name]
    ]
    path = HERE / f"transcripts_{name}.txt"
    if update_golden:
        path.write_text("\n".join(told), encoding="utf-8")

    assert path.read_text(encoding="utf-8") == "\n".join(told)
