"""`contexture search`: passages that match, as they may be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.common import Collection, Common, Where, command, existing, with_engine
from contexture.cli.inputs import where_of
from contexture.cli.output import console, emit, plain

if TYPE_CHECKING:
    from contexture.ledger import Degradation
    from contexture.types import Candidate

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
    condition = where_of(where)
    settings = existing(common.settings(collection=collection))
    pool = limit if limit > _POOL else None
    result = with_engine(settings, lambda engine: engine.search(query, where=condition, pool=pool))
    shown = result.found[:limit]
    if common.as_json:
        emit({"query": query, "results": [_row(each) for each in shown], "degradations": result.degradations})
    else:
        _print(shown, result.degradations)


def _row(candidate: Candidate) -> dict[str, Any]:
    return {
        "id": candidate.id,
        "title": candidate.title,
        "text": candidate.text,
        "score": candidate.score,
        "signals": candidate.signals,
        "lang": candidate.lang,
        "source": candidate.source,
        "kind": candidate.kind,
        "time": candidate.time,
        "citation": candidate.citation,
    }


def _print(shown: Sequence[Candidate], lost: Sequence[Degradation]) -> None:
    from rich.text import Text

    from contexture.cli.tables import losses, table

    out = console()
    if not shown:
        out.print("nothing matches")
    else:
        found = table("score", "passage", "text", right=("score",))
        for candidate in shown:
            text = " ".join(candidate.text.split())
            snippet = text if len(text) <= _SNIPPET else f"{text[: _SNIPPET - 1]}…"
            found.add_row(f"{candidate.score:.3f}", Text(plain(candidate.id)), Text(plain(snippet)))
        out.print(found)
    for line in losses(lost):
        out.print(line)
