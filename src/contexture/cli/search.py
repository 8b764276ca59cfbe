"""`contexture search`: prints matching passages, redacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli import _common as cli
from contexture.cli._client import find_service, parse_degradations
from contexture.cli._output import console, print_json, print_note, replace_control_chars

if TYPE_CHECKING:
    from contexture.config import Settings

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
    settings = common.settings()
    body: dict[str, Any] = {"query": query, "limit": limit, "collection": collection or settings.collection}
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

    name = body["collection"]
    result = cli.run_with_engine(
        cli.require_store(settings),
        lambda engine: engine.search(request.query, limit=request.limit, collection=name, where=request.where),
        action="search",
        resource={"collection": name},
    )
    return result.to_dict()


def _print_results(found: dict[str, Any]) -> None:
    from rich.text import Text

    from contexture.cli._tables import degradation_lines, table

    out = console()
    if not found["results"]:
        out.print("nothing matches")
        print_note("load more with: contexture ingest PATH")
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
