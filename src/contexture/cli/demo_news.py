"""The news of the demonstration: loaded as of now, and searched by two of its users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from contexture.engine import Contexture
    from contexture.ingestion.writer import LoadReport
    from contexture.news.articles import FoundArticle
    from contexture.types import Scope

_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class NewsScene:
    """One search of the demonstration."""

    heading: str
    text: str
    hours: int
    user: str
    langs: tuple[str, ...] = ()


NEWS_SCENES = (
    NewsScene(
        heading="News of three days in English; copies of a story are one, conflicting reports are not",
        text="dockers strike in the port",
        hours=72,
        user="demo",
        langs=("en",),
    ),
    NewsScene(
        heading="News of a day in any language, asked by anna, who also reads the briefings of support",
        text="Как забастовка докеров влияет на подписчиков?",
        hours=24,
        user="anna",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Headlines:
    """A scene, what was found for it, and when."""

    scene: NewsScene
    found: tuple[FoundArticle, ...]
    now: datetime


async def published(engine: Contexture, folder: Path, loader: Scope, now: datetime) -> LoadReport:
    """Load the sample news, dated as of `now`."""
    from contexture import wiring
    from contexture.ingestion.article_files import Reading
    from contexture.ingestion.articles import ArticleWriter, load_articles
    from contexture.types import PUBLIC

    reading = Reading(readers=(PUBLIC,), now=now, parser=wiring.feed_parser())
    return await load_articles(ArticleWriter(engine.news, loader, now), reading, paths=[folder])


async def headlines(engine: Contexture, scene: NewsScene, scope: Scope, now: datetime) -> Headlines:
    """What the user of a scene finds."""
    from contexture.ledger import Trace
    from contexture.news.articles import NewsQuestion

    question = NewsQuestion(text=scene.text, since=now - timedelta(hours=scene.hours), langs=scene.langs)
    found = await engine.news.find(scope, question, k=_SHOWN, rerank=True, trace=Trace())
    return Headlines(scene=scene, found=tuple(found), now=now)


def news_object(report: LoadReport, shown: Sequence[Headlines]) -> dict[str, Any]:
    """The news of the demonstration as JSON."""
    from contexture.service.wire.articles import articles_object

    scenes = [
        {
            "query": each.scene.text,
            "user": each.scene.user,
            "hours": each.scene.hours,
            "articles": [_row(found) for found in each.found],
        }
        for each in shown
    ]
    return {"loaded": articles_object(report), "scenes": scenes}


def print_news(out: Console, shown: Sequence[Headlines], *, first: int) -> None:
    """One table a scene, numbered from `first`."""
    from rich.text import Text

    from contexture.cli.output import plain
    from contexture.cli.tables import table

    for number, each in enumerate(shown, start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.text}", style="italic"))
        rows = table("score", "age", "source", "title", "also in", right=("score", "age"))
        for found in each.found:
            also = ", ".join(other.source for other in found.article.also)
            shown_as = (found.article.source, found.article.title, also)
            rows.add_row(f"{found.score:.3f}", _age(found, each.now), *(Text(plain(part)) for part in shown_as))
        out.print(rows)


def _row(found: FoundArticle) -> dict[str, Any]:
    article = found.article
    return {
        "article_id": article.article_id,
        "title": article.title,
        "source": article.source,
        "url": article.url,
        "lang": article.lang,
        "score": found.score,
        "also": article.also,
    }


def _age(found: FoundArticle, now: datetime) -> str:
    hours = (now - (found.article.published or now)).total_seconds() / 3600
    return "?" if found.dated_by_loading else f"{hours:.0f} h"
