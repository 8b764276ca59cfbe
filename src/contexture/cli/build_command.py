"""`contexture build command`: the context of a slash command."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.capsules import fetched
from contexture.cli.common import Common, with_engine
from contexture.cli.inputs import moment, object_on_stdin, write_bytes
from contexture.cli.output import console, emit, note
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings


def slash(
    common: Common,
    line: Annotated[
        str | None,
        typer.Argument(metavar="COMMAND", help="The command with its arguments; without it a request is read as JSON."),
    ] = None,
    lang: Annotated[
        str | None, typer.Option("--lang", metavar="LANG", help="The user's language: ru, en or auto.")
    ] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Take this as the clock.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write what `replay` needs to this file.")
    ] = None,
) -> None:
    """Build the context of a slash COMMAND, such as "/ask window=24h topic=AI".

    A request on standard input is an object with `raw_command`, and may have `args`, `user_lang`, `env` and `ab_test`.
    """
    clock = moment(now)
    asked = object_on_stdin() if line is None else {"raw_command": line}
    if lang is not None:
        asked = {**asked, "user_lang": lang}
    built, packed = _built(common.settings(), asked, clock, capsule=capsule is not None)
    if capsule is not None:
        write_bytes(capsule, packed)
    if common.as_json:
        emit(built)
    else:
        _print(built)
        build_id = built["telemetry"]["correlation_id"]
        note(f"explain it: contexture explain {build_id} {common.retyped()}".rstrip())


def _built(
    settings: Settings, asked: dict[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    door = remote(settings)
    if door is not None:
        found = door.ask("POST", "/v1/context/command", asked, now=clock)
        return found, fetched(door, found["telemetry"]["correlation_id"]) if capsule else b""
    from contexture.capsule import pack_capsule
    from contexture.service.wire.command import command_object

    built = with_engine(settings, lambda engine: engine.build_command(asked, scope=engine.scope, now=clock))
    return as_sent(command_object(built)), pack_capsule(built.capsule)


def _print(built: dict[str, Any]) -> None:
    from contexture.cli.output import plain
    from contexture.cli.tables import losses

    out, retrieval = console(), built["retrieval"]
    out.print(f"{built['command']}  window {retrieval['window']}, lang {retrieval['lang']}, model "
              f"{built['models']['primary']}")  # fmt: skip
    for number, doc in enumerate(retrieval["docs"], start=1):
        out.print(plain(f"{number:>3}. {doc['date']}  {doc['score']:.3f}  {doc['title']}"))
        out.print(plain(f"     {doc['snippet']}"))
    for step in built["recovery"]:
        out.print(f"recovery: {step['done']} ({step['found']} found)")
    for line in losses(degradations_of(built)):
        out.print(line)
