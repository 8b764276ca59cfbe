"""The command line: `contexture COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from contexture.cli import (
    ask,
    backup,
    build,
    chat,
    cite,
    demo,
    doctor,
    evaluate,
    explain,
    ingest,
    keys,
    mcp,
    migrate,
    replay,
    search,
    serve,
    settings,
    tokens,
    worker,
)
from contexture.cli.common import Home
from contexture.cli.output import exit_code, fail
from contexture.errors import InvalidRequest

USAGE_ERROR = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""Typer's own class for command lines it cannot understand, which it does not export."""


class Door(TyperGroup):
    """Answers a command line that cannot be understood in the form it asks for."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; with `--json` in it, a usage error is an object too."""
        words = sys.argv[1:] if args is None else list(args)
        if not standalone_mode or "--json" not in words:
            return super().main(words, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        try:
            sys.exit(super().main(words, prog_name, complete_var, False, windows_expand_args, **extra))
        except USAGE_ERROR as failure:
            fail(InvalidRequest(failure.format_message()), as_json=True)
            sys.exit(exit_code(InvalidRequest()))


app = typer.Typer(
    name="contexture",
    cls=Door,
    help="Build the context an LLM sees: ranked, permitted, redacted, budgeted, explained.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def show_version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        from importlib.metadata import version

        typer.echo(f"contexture {version('contexture')}")
        raise typer.Exit


@app.callback()
def main(
    ctx: typer.Context,
    home: Home = None,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Build the context an LLM sees: ranked, permitted, redacted, budgeted, explained."""
    del version
    ctx.obj = home


for group in (
    demo,
    serve,
    worker,
    mcp,
    keys,
    ingest,
    search,
    build,
    ask,
    chat,
    explain,
    replay,
    cite,
    tokens,
    evaluate,
    backup,
    migrate,
    doctor,
    settings,
):
    group.register(app)
