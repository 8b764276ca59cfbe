"""`contexture migrate`: a whole store moves into another one."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from contexture.cli.common import Common, command
from contexture.cli.output import emit, say
from contexture.cli.progress import watched


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "migrate")(migrate)


def migrate(
    common: Common,
    source: Annotated[str, typer.Option("--from", metavar="STORE", help="Folder, or postgres://HOST/NAME.")],
    target: Annotated[str, typer.Option("--to", metavar="STORE", help="Folder, or postgres://HOST/NAME.")],
) -> None:
    """Write everything that one store holds into another.

    Stop what uses either of them first. What is there already is left alone: a move that was cut short is started
    again and goes on. At the end both are compared, by number and content.
    """
    from contexture.adapters.moving.run import move, store_at

    with (
        closing(store_at(source, existing=True)) as first,
        closing(store_at(target, existing=False)) as second,
        watched(as_json=common.as_json) as progress,
    ):
        moved = move(first, second, progress)
    if common.as_json:
        emit({"records": moved.records, "rows": moved.rows, "files": moved.files, "known": moved.known_records})
        return
    say(
        f"{moved.records} records, {moved.rows} other rows and {moved.files} files are the same in both; "
        f"{moved.known_records} records were there before"
    )
