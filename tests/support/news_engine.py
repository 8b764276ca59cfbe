"""An engine with news that commands can be executed over: sources that agree, differ and leave gaps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from contexture.answer.commands.writer import AnswerWriter
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.news.articles import Article
from contexture.ports import ChatModel
from contexture.testing.doubles import NOON, WordCounter
from contexture.types import PUBLIC
from support.service import small_engine

_TEXTS = {
    "strike": "Dock workers at the port of Tallinn walked out on Monday. Norvik Lines said 12 ships are waiting. "
    "Maria Tamm of the Seafarers Union called for talks.",
    "standstill": "Dock workers at the port of Tallinn have stopped work. Port control said 15 ships are waiting. "
    "Norvik Lines will not meet Maria Tamm.",
    "talks": "Norvik Lines agreed on 30 May to meet Maria Tamm in Helsinki. Jonas Berg leads Norvik Lines.",
    "cost": "The strike costs 2 million euros a day, Baltic Insure said. Jonas Berg met Baltic Insure in Riga.",
    "stop": "Докеры порта Таллина прекратили работу в понедельник. Мария Тамм требует переговоров.",
}
_SOURCES = {
    "strike": "example.org",
    "standstill": "herald.example",
    "talks": "example.org",
    "cost": "money.example",
    "stop": "novosti.example",
}
_HOURS = {"strike": 2, "standstill": 3, "talks": 20, "cost": 10, "stop": 4}


def told(name: str, *, readers: tuple[str, ...] = (PUBLIC,)) -> Article:
    """One of the articles."""
    return Article(
        article_id=name,
        title=f"The {name}",
        text=_TEXTS[name],
        source=_SOURCES[name],
        url=f"https://{_SOURCES[name]}/{name}",
        published=NOON - timedelta(hours=_HOURS[name]),
        readers=readers,
    )


ARTICLES = tuple(told(name) for name in _TEXTS)
"""A strike as four English sources and a Russian one tell it."""


@asynccontextmanager
async def news_engine(folder: Path, articles: tuple[Article, ...] = ARTICLES) -> AsyncGenerator[Contexture]:
    """An engine over small embedders that finds names by capital letters, with these articles of tenant acme."""
    settings = Settings(home=folder, tenant="acme", user="anna", graph_names="phrases")
    async with small_engine(settings) as engine:
        if articles:
            await engine.news.add(engine.scope, articles, now=NOON)
        yield engine


def with_models(engine: Contexture, models: Mapping[str, ChatModel]) -> None:
    """Let these models write the answers, under the names of the routes; tokens are words."""
    engine.execute = replace(engine.execute, writer=AnswerWriter(models=models, counter=WordCounter()))
