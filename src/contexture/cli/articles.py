"""Articles from files and feeds, written here or sent to the service that holds the store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from contexture.cli.remote import Door
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ingestion.articles import ArticleIntake
    from contexture.ingestion.load import Progress
    from contexture.ingestion.writer import LoadReport


class Loaded(StrEnum):
    """Documents to search, memories to recall, articles with a date and a source, or the blocks of a workspace."""

    ARTICLES = "articles"
    BLOCKS = "blocks"
    DOCUMENTS = "documents"
    MEMORIES = "memories"


Held = Annotated[Loaded | None, typer.Option("--as", help="What the files hold; by their kind when it is not said.")]

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_url(place: str) -> bool:
    """Whether a place is an address rather than a path."""
    return _URL.match(place) is not None


def publish(
    settings: Settings,
    places: Sequence[str],
    *,
    readers: tuple[str, ...],
    door: Door | None,
    again: bool,
    progress: Progress | None,
) -> LoadReport:
    """Load articles from files, folders and the addresses of feeds; addresses are fetched by this process."""
    from contexture import wiring
    from contexture.ingestion.article_files import Reading
    from contexture.ingestion.articles import ArticleWriter, load_articles
    from contexture.ingestion.load import MUCH
    from contexture.types import Scope

    now = wiring.SystemClock().now()
    asker = Scope(tenant=settings.tenant, user=settings.user, groups=settings.groups)

    async def loaded(writer: ArticleIntake) -> LoadReport:
        return await load_articles(
            writer,
            Reading(readers=readers, now=now, parser=wiring.feed_parser(), writer=asker),
            paths=[Path(place) for place in places if not is_url(place)],
            urls=[place for place in places if is_url(place)],
            wire=wiring.feed_wire(settings, again=again),
            progress=progress,
        )

    async def inside(engine: Contexture) -> LoadReport:
        report = await loaded(ArticleWriter(engine.news, engine.scope, now))
        if report.added >= MUCH:
            await engine.index.optimize()
        return report

    if door is not None:
        from contexture.cli.sending import ArticleSender

        return asyncio.run(loaded(ArticleSender(door)))
    from contexture.cli.common import with_engine

    return with_engine(settings, inside)
