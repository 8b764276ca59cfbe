"""`contexture search`: prints matching passages, redacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli import _common as cli
from contexture.cli._client import find_service, parse_degradations
from contexture.cli._output import console, print_json, replace_control_chars
from contexture.errors import NotFound

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.retrieval.candidates import SearchResult

_SNIPPET_CHARS = 160


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    cli.register_command(app, "search", with_identity=True)(search)


def search(
    common: cli.Common,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Text to search for.")],
    collection: cli.CollectionOption = None,
    where: cli.WhereOption = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="Passages to show.")] = 10,
) -> None:
    """Show the passages that match QUERY, best first, redacted."""
    settings = common.settings(collection=collection)
    body: dict[str, Any] = {"query": query, "limit": limit, "collection": settings.collection}
    if where is not None:
        body["where"] = cli.parse_json(where, "--where")
    found = _search(settings, body)
    if common.as_json:
        print_json(found)
    else:
        _print_results(found)


def _search(settings: Settings, body: dict[str, Any]) -> dict[str, Any]:
    from contexture.builders.query.request import parse_search

    request = parse_search(body)
    service = find_service(settings)
    if service is not None:
        return service.request("POST", "/v1/search", body)

    async def search(engine: Contexture) -> SearchResult:
        known = {each.name for each in await engine.index.collections(engine.scope)}
        if settings.collection not in known:
            raise NotFound(f"collection {settings.collection!r} is empty; load something first: contexture ingest PATH")
        return await engine.search(request.query, limit=request.limit, where=request.where)

    result = cli.run_with_engine(
        cli.require_store(settings),
        search,
        action="search",
        resource={"collection": settings.collection},
    )
    return result.to_dict()


def _print_results(found: dict[str, Any]) -> None:
    from rich.text import Text

    from contexture.cli._tables import degradation_lines, table

    out = console()
    if not found["results"]:
        out.print("nothing matches")
    else:
        shown = table("score", "passage", "text", right=("score",))
        for row in found["results"]:
            text = " ".join(row["text"].split())
            snippet = text if len(text) <= _SNIPPET_CHARS else f"{text[: _SNIPPET_CHARS - 1]}…"
            shown.add_row(
                f"{row['score']:.3f}", Text(replace_control_chars(row["id"])), Text(replace_control_chars(snippet))
            )
        out.print(shown)
    for line in degradation_lines(parse_degradations(found)):
        out.print(line)
