"""`contexture search`: passages that match, as they may be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.common import Collection, Common, Where, command, existing, with_engine
from contexture.cli.inputs import parsed, where_of
from contexture.cli.output import console, emit, plain
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.types import Filter

_SNIPPET = 160
_POOL = 60  # what the engine looks at by itself


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "search", acting=True)(search)


def search(
    common: Common,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    collection: Collection = None,
    where: Where = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="Passages to show.")] = 10,
) -> None:
    """Show the passages that match QUERY, best first, redacted."""
    settings = common.settings(collection=collection)
    condition = where_of(where)
    door = remote(settings)
    if door is not None:
        body = {"query": query, "limit": limit, "collection": settings.collection}
        found = door.ask("POST", "/v1/search", body if where is None else {**body, "where": parsed(where, "--where")})
    else:
        found = _here(settings, query, condition, limit)
    if common.as_json:
        emit(found)
    else:
        _print(found)


def _here(settings: Settings, query: str, where: Filter | None, limit: int) -> dict[str, Any]:
    from contexture.service.shapes import found_object

    pool = limit if limit > _POOL else None
    result = with_engine(existing(settings), lambda engine: engine.search(query, where=where, pool=pool))
    return as_sent(found_object(result, limit))


def _print(found: dict[str, Any]) -> None:
    from rich.text import Text

    from contexture.cli.tables import losses, table

    out = console()
    if not found["results"]:
        out.print("nothing matches")
    else:
        shown = table("score", "passage", "text", right=("score",))
        for row in found["results"]:
            text = " ".join(row["text"].split())
            snippet = text if len(text) <= _SNIPPET else f"{text[: _SNIPPET - 1]}…"
            shown.add_row(f"{row['score']:.3f}", Text(plain(row["id"])), Text(plain(snippet)))
        out.print(shown)
    for line in losses(degradations_of(found)):
        out.print(line)
