"""`POST` and `DELETE /v1/ingest/articles`: write and remove articles."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Response

from contexture.errors import InvalidRequest
from contexture.ingestion.article_files import Items, Told
from contexture.ingestion.article_rows import FIELDS, article_from
from contexture.ingestion.articles import ArticleWriter
from contexture.ingestion.problems import Problem
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.wire.answers import RemovedShape, ReportShape
from contexture.service.wire.articles import ArticlesBody, RemoveBody, articles_object
from contexture.types import Scope

PLACE = "articles"
"""How the list of a request is called in problems; the line is the row's place in it, from 1."""


def router() -> APIRouter:
    """The routes of articles."""
    routes = APIRouter(prefix="/v1/ingest", tags=["ingest"])
    routes.post("/articles", response_model=ReportShape)(write)
    routes.delete("/articles", response_model=RemovedShape)(remove)
    return routes


async def write(body: ArticlesBody, engine: Engine, caller: Caller, moment: Moment) -> Response:
    """What became of each article: added, unchanged, or failed and why; and how many are copies of a better one."""
    await permit(engine, caller, "ingest", {"collection": PLACE, "records": len(body.articles)})
    now = moment or engine.clock.now()
    writer = ArticleWriter(engine.news, caller, now)
    await writer.take(_items(body, caller, now))
    return answer(articles_object(writer.report))


async def remove(body: RemoveBody, engine: Engine, caller: Caller) -> Response:
    """How many of these articles there were that the caller may read; they are gone."""
    await permit(engine, caller, "delete", {"collection": PLACE, "records": len(body.ids)})
    return answer({"deleted": await engine.news.remove(caller, body.ids)})


def _items(body: ArticlesBody, caller: Scope, now: datetime) -> Items:
    for number, row in enumerate(body.articles, start=1):
        try:
            _check_fields(row)
            article, warnings = article_from(row, readers=tuple(body.readers), now=now, writer=caller)
        except InvalidRequest as failure:
            yield Problem(path=PLACE, line=number, message=str(failure))
            continue
        found = Told(article=article, path=PLACE, line=number)
        yield from (found.problem(message, warning=True) for message in warnings)
        yield found


def _check_fields(row: dict[str, Any]) -> None:
    strange = next((name for name in row if name not in FIELDS), None)
    if strange is not None:
        raise InvalidRequest(f"there is no field {strange!r}; the fields are {', '.join(sorted(FIELDS))}")
