"""`contexture replay`: rebuild a capsule and compare the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.common import Common, command
from contexture.cli.inputs import read_bytes
from contexture.cli.output import console, emit, say

if TYPE_CHECKING:
    from contexture.capsule import Capsule
    from contexture.ledger import Ledger


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "replay")(replay)


def replay(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `build --capsule`; `-` for standard input.")],
    show: Annotated[bool, typer.Option("--show", help="Print the prompt and the ledger too.")] = False,
) -> None:
    """Rebuild a capsule and compare the bytes.

    Needs neither the store nor a model, and fails when a byte differs.
    """
    from contexture.engine import replay as rebuild

    capsule, ledger = rebuild(read_bytes(file))
    if common.as_json:
        answer = {"identical": True, "digest": capsule.digest, "messages": capsule.messages, "ledger": ledger.entries}
        emit({**answer, "degradations": ledger.degradations})
        return
    say(f"identical: {capsule.digest}")
    if show:
        _print(capsule, ledger)


def _print(capsule: Capsule, ledger: Ledger) -> None:
    from contexture.cli.tables import ledger_view, panel

    out = console()
    for message in capsule.messages:
        out.print(panel(str(message.get("name", message["role"])), str(message["content"])))
    out.print(ledger_view(ledger))
