"""`contexture search`: prints matching passages, redacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.client import find_service, parse_degradations, to_wire_json
from contexture.cli.common import (
    CollectionOption,
    Common,
    WhereOption,
    parse_json,
    parse_where,
    register_command,
    require_store,
    run_with_engine,
)
from contexture.cli.output import console, print_json, replace_control_chars

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.types import Filter

_SNIPPET_CHARS = 160
_DEFAULT_POOL = 60  # the engine's default pool size


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "search", with_identity=True)(search)


def search(
    common: Common,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Text to search for.")],
    collection: CollectionOption = None,
    where: WhereOption = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="Passages to show.")] = 10,
) -> None:
    """Show the passages that match QUERY, best first, redacted."""
    settings = common.settings(collection=collection)
    condition = parse_where(where)
    door = find_service(settings)
    if door is not None:
        body = {"query": query, "limit": limit, "collection": settings.collection}
        found = door.request(
            "POST", "/v1/search", body if where is None else {**body, "where": parse_json(where, "--where")}
        )
    else:
        found = _search_locally(settings, query, condition, limit)
    if common.as_json:
        print_json(found)
    else:
        _print_results(found)


def _search_locally(settings: Settings, query: str, where: Filter | None, limit: int) -> dict[str, Any]:
    from contexture.service.wire.builds import search_object

    pool = limit if limit > _DEFAULT_POOL else None
    result = run_with_engine(require_store(settings), lambda engine: engine.search(query, where=where, pool=pool))
    return to_wire_json(search_object(result, limit))


def _print_results(found: dict[str, Any]) -> None:
    from rich.text import Text

    from contexture.cli.tables import degradation_lines, table

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
