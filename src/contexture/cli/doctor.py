"""`contexture doctor`: what works here, what does not, and what to install."""

from __future__ import annotations

import typer

from contexture.cli.common import Common, command
from contexture.cli.output import console, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "doctor")(doctor)


def doctor(common: Common) -> None:
    """Check every part and say what to install.

    Fails when a part that is needed does; optional parts are only named.
    """
    from contexture.cli.checks import Status, examine
    from contexture.cli.logs import to_stderr

    to_stderr()
    found = examine(common.settings())
    broken = any(check.status is Status.BROKEN for check in found)
    if common.as_json:
        emit({"ok": not broken, "checks": found})
    else:
        from rich.text import Text

        from contexture.cli.output import plain
        from contexture.cli.tables import table

        styles = {Status.OK: "green", Status.ABSENT: "yellow", Status.INCOMPLETE: "yellow", Status.BROKEN: "red"}
        shown = table("part", "status", "what was found")
        for check in found:
            shown.add_row(check.name, Text(check.status.value, styles[check.status]), Text(plain(check.detail)))
        console().print(shown)
    if broken:
        raise typer.Exit(1)
