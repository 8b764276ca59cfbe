"""The command line: `contexture COMMAND`."""

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
    demo,
    doctor,
    evaluate,
    explain,
    forget,
    ingest,
    keys,
    search,
    serve,
)
from contexture.cli._common import HomeOption
from contexture.cli._output import exit_code, print_error
from contexture.errors import InvalidRequest

USAGE_ERROR = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""Typer's class for usage errors, which it does not export."""


class JsonUsageGroup(TyperGroup):
    """Typer group that answers usage errors as a JSON object when `--json` is given."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; with `--json`, a usage error is printed as a JSON object."""
        words = sys.argv[1:] if args is None else list(args)
        if not standalone_mode or "--json" not in words:
            return super().main(words, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        try:
            sys.exit(super().main(words, prog_name, complete_var, False, windows_expand_args, **extra))
        except USAGE_ERROR as failure:
            print_error(InvalidRequest(failure.format_message()), as_json=True)
            sys.exit(exit_code(InvalidRequest()))


app = typer.Typer(
    name="contexture",
    cls=JsonUsageGroup,
    help="Build the context that a language model sees: permitted, redacted, ranked, within a budget, and explained.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def print_version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        from importlib.metadata import version

        typer.echo(f"contexture {version('contexture-ai')}")
        raise typer.Exit


@app.callback()
def main(
    ctx: typer.Context,
    home: HomeOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Build the context that a language model sees: permitted, redacted, ranked, within a budget, and explained."""
    del version
    ctx.obj = home


for register in (
    demo.register,
    serve.register_serve,
    serve.register_worker,
    serve.register_mcp,
    keys.register,
    ingest.register,
    search.register,
    build.register,
    ask.register,
    chat.register,
    explain.register_explain,
    explain.register_replay,
    explain.register_cite,
    forget.register,
    evaluate.register_tokens,
    evaluate.register_evaluate,
    backup.register_reindex,
    backup.register_backup,
    backup.register_migrate,
    doctor.register_doctor,
    doctor.register_settings,
):
    register(app)
