"""`contexture build`: the group, and `query`, a context for a question."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.build_command import slash
from contexture.cli.build_research import research
from contexture.cli.build_turn import turn
from contexture.cli.build_workspace import workspace
from contexture.cli.capsules import fetched
from contexture.cli.common import Collection, Common, Where, command, existing, with_engine
from contexture.cli.inputs import moment, object_on_stdin, parsed, write_bytes
from contexture.cli.output import console, emit, note
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings


def register(app: typer.Typer) -> None:
    """Add the group and its kinds of build."""
    kinds = typer.Typer(help="Build a context.", no_args_is_help=True, rich_markup_mode=None)
    command(kinds, "query", acting=True)(query)
    command(kinds, "turn", acting=True)(turn)
    command(kinds, "command", acting=True)(slash)
    command(kinds, "research", acting=True)(research)
    command(kinds, "workspace", acting=True)(workspace)
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
    request = {**defaults, **asked, **given}
    door = remote(settings)
    if door is not None:
        built = door.ask(
            "POST", "/v1/context/query", request if model is None else {**request, "model": model}, now=clock
        )
        packed = fetched(door, built["build_id"]) if capsule else b""
    else:
        built, packed = _here(settings, request, clock)
    if capsule is not None:
        write_bytes(capsule, packed)
    _answer(common, built)


def _here(settings: Settings, request: dict[str, Any], clock: datetime | None) -> tuple[dict[str, Any], bytes]:
    from contexture.builders.query.request import request_from_json
    from contexture.capsule import pack_capsule
    from contexture.service.shapes import built_object

    asked = request_from_json(request)
    built = with_engine(existing(settings), lambda engine: engine.build(asked, now=clock))
    return as_sent(built_object(built)), pack_capsule(built.capsule)


def _answer(common: Common, built: dict[str, Any]) -> None:
    if common.as_json:
        emit(built)
    else:
        _print(built)
        note(f"explain it: contexture explain {built['build_id']} {common.retyped()}".rstrip())


def _print(built: dict[str, Any]) -> None:
    from contexture.cli.tables import losses, panel

    out = console()
    for message in built["messages"]:
        out.print(panel(str(message.get("name", message["role"])), str(message["content"])))
    counts = ", ".join(f"{name} {count}" for name, count in built["token_counts"].items())
    kind = "" if built["exact"] else " (estimated)"
    out.print(f"{built['build_id']}: {built['tokens']} of {built['max_tokens']} tokens{kind}: {counts}")
    for line in losses(degradations_of(built)):
        out.print(line)
