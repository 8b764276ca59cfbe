"""`contexture ask --research`: a cited answer from the pages of documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.common import existing, with_engine
from contexture.cli.output import plain
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from rich.console import RenderableType

    from contexture.config import Settings

_LACKS = {
    "no_marker": "names no source",
    "not_in_source": "is not in the source it names",
    "figure_not_in_source": "has a figure that the source it names has not",
    "name_not_in_source": "has a name that the source it names has not",
}


def answered(settings: Settings, asked: Mapping[str, Any], clock: datetime | None) -> dict[str, Any]:
    """The answer to a research question, as the service that holds the store gives it, or as it is made here."""
    door = remote(settings)
    if door is not None:
        return door.ask("POST", "/api/research/ask", asked, now=clock)
    from contexture.answer.research.values import question_of
    from contexture.service.wire.research import ask_object

    told = question_of(asked, answering=True)
    answer = with_engine(
        existing(settings), lambda engine: engine.ask_research.run(told, scope=engine.scope, now=clock)
    )
    return as_sent(ask_object(answer))


def report(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """An answer for people: what it says, its sources, and what to be careful about."""
    from rich.text import Text

    from contexture.cli.tables import losses

    yield Text(plain(found["answer"]))
    if found["sources"]:
        yield Text("")
        yield _sources(found)
    for removed in found["removed_markers"]:
        yield Text(plain(f"removed: {removed['marker']} points at no source"), style="yellow")
    for each in found["unsupported"]:
        missing = f" ({', '.join(each['missing'])})" if each["missing"] else ""
        yield Text(plain(f'unsupported: "{each["sentence"]}" {_LACKS[each["lack"]]}{missing}'), style="yellow")
    yield Text(f"\n{_how(found)}", style="dim")
    yield from losses(degradations_of(dict(found)))


def _sources(found: Mapping[str, Any]) -> RenderableType:
    from rich.text import Text

    from contexture.cli.tables import table

    rows = table("source", "file", "page", "section", "score", right=("source", "page", "score"))
    for number, source in enumerate(found["sources"], start=1):
        style = "green" if number in found["cited"] else "dim"
        rows.add_row(
            Text(f"[{number}]", style=style),
            Text(plain(source["filename"])),
            str(source["page"]),
            Text(plain(source["section_path"] or "")),
            f"{source['relevance_score']:.3f}",
        )
    return rows


def _how(found: Mapping[str, Any]) -> str:
    cut = ", truncated" if found["truncated"] else ""
    spent = f"{found['build_id']}: {len(found['sources'])} sources in {found['total_tokens']} tokens{cut}"
    if found["extractive"]:
        return f"{spent}; extractive: no model was used, the sentences are the sources' own"
    return f"{spent}; written by {found['model']}"
