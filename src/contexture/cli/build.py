"""`contexture build query`: a context for a question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.common import Collection, Common, Where, command, existing, with_engine
from contexture.cli.inputs import moment, object_on_stdin, parsed, write_bytes
from contexture.cli.output import console, emit, note

if TYPE_CHECKING:
    from contexture.builders.query.build import QueryContext


def register(app: typer.Typer) -> None:
    """Add the group and its kinds of build."""
    kinds = typer.Typer(help="Build a context.", no_args_is_help=True, rich_markup_mode=None)
    command(kinds, "query", acting=True)(query)
    app.add_typer(kinds, name="build")


def query(
    common: Common,
    question: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="The question; without it a request is read as JSON.")
    ] = None,
    collection: Collection = None,
    where: Where = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Token budget.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Model or encoding whose tokens are counted.")
    ] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Take this as the clock.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write what `replay` needs to this file.")
    ] = None,
) -> None:
    """Build a context for QUERY, or for the request on standard input.

    A request is an object with `query`, and may have `collection`, `max_tokens`, `system` and `where`.
    """
    from contexture.builders.query.request import request_from_json

    clock = moment(now)
    settings = common.settings(collection=collection, model=model, max_tokens=max_tokens)
    asked: dict[str, Any] = object_on_stdin() if question is None else {"query": question}
    chosen = {
        "collection": collection,
        "max_tokens": max_tokens,
        "where": None if where is None else parsed(where, "--where"),
    }
    defaults = {"collection": settings.collection, "max_tokens": settings.max_tokens}
    given = {name: value for name, value in chosen.items() if value is not None}
    request = request_from_json({**defaults, **asked, **given})
    built = with_engine(existing(settings), lambda engine: engine.build(request, now=clock))
    _answer(common, built, capsule)


def _answer(common: Common, built: QueryContext, file: Path | None) -> None:
    if file is not None:
        from contexture.capsule import pack_capsule

        write_bytes(file, pack_capsule(built.capsule))
    if common.as_json:
        from contexture.cli.shapes import built_object

        emit(built_object(built))
    else:
        _print(built)
        note(f"explain it: contexture explain {built.context.build_id} {common.retyped()}".rstrip())


def _print(built: QueryContext) -> None:
    from contexture.cli.tables import losses, panel

    out = console()
    for message in built.context.messages:
        out.print(panel(str(message.get("name", message["role"])), str(message["content"])))
    counts = ", ".join(f"{name} {count}" for name, count in built.context.token_counts.items())
    kind = "" if built.context.exact else " (estimated)"
    limit = built.capsule.request["max_tokens"]
    out.print(f"{built.context.build_id}: {built.context.tokens} of {limit} tokens{kind}: {counts}")
    for line in losses(built.ledger.degradations):
        out.print(line)
