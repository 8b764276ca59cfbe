"""`contexture cite verify`: whether what a file cites still stands where it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.answers import as_sent
from contexture.cli.common import Common, command, existing, with_engine
from contexture.cli.inputs import decoded, parsed, read_bytes
from contexture.cli.output import emit, say
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings


def register(app: typer.Typer) -> None:
    """Add the group and its command."""
    group = typer.Typer(help="Check citations.", no_args_is_help=True, rich_markup_mode=None)
    command(group, "verify", acting=True)(verify)
    app.add_typer(group, name="cite")


def verify(
    common: Common,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A built context, an answer or a capsule as JSON; `-` for standard input."),
    ],
) -> None:
    """Resolve every citation in FILE against the store, and compare what is shown with what stands there.

    Redaction is done again, and an ellipsis may stand for anything. Exits with 1 when a citation does not hold.
    """
    found = _verified(common.settings(), read_bytes(file))
    if common.as_json:
        emit(found)
    else:
        for problem in found["problems"]:
            say(f"does not hold: {problem['reason']}")
        state = "all hold" if found["holds"] else f"{len(found['problems'])} problems"
        say(f"{found['citations']} citations checked: {state}")
    if not found["holds"]:
        raise typer.Exit(1)


def _verified(settings: Settings, data: bytes) -> dict[str, Any]:
    door = remote(settings)
    if door is not None:
        return door.ask("POST", "/v1/citations/verify", parsed(decoded(data, "the file"), "the file"))
    return as_sent(with_engine(existing(settings), lambda engine: engine.verify(data)).to_dict())
