"""What `/v1/ingest/articles` takes and answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contexture.ingestion.writer import LoadReport
from contexture.service.shapes import report_object
from contexture.types import PUBLIC

_MOST = 10_000


class ArticlesBody(BaseModel):
    """Articles to write, each as a row of a JSONL file; `readers` is for those that name none."""

    model_config = ConfigDict(extra="forbid")

    articles: Annotated[list[dict[str, Any]], Field(max_length=_MOST)]
    readers: list[Annotated[str, Field(min_length=1)]] = [PUBLIC]


class RemoveBody(BaseModel):
    """Articles to remove."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[list[str], Field(max_length=_MOST)]


def articles_object(report: LoadReport) -> dict[str, Any]:
    """What became of the articles that were read."""
    return {**report_object(report), "collapsed": report.collapsed}
