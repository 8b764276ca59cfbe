"""`contexture build KIND` for the builders of other packages, each a command of its own."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from contexture.cli import _common as cli
from contexture.cli._client import find_service, to_wire_json
from contexture.errors import InvalidRequest, UnknownAdapter


class BuilderGroup(TyperGroup):
    """Typer group that also has a command for each builder of another package."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name; other packages are looked for only when no own one has it."""
        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in _other_kinds() else _make_command(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *_other_kinds()]


def _other_kinds() -> list[str]:
    from contexture.wiring.plugins import PluginGroup, installed_plugins

    try:
        found = installed_plugins(PluginGroup.BUILDERS)
    except UnknownAdapter:  # broken metadata of our own, which the other commands report
        return []
    return [plugin.name for plugin in found if not plugin.is_built_in and not plugin.problem]


def _make_command(kind: str) -> Any:
    def build(
        common: cli.Common,
        request: Annotated[
            str | None, typer.Argument(metavar="JSON", help="The request; read from standard input if omitted.")
        ] = None,
        now: Annotated[
            str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")
        ] = None,
        capsule: Annotated[
            Path | None, typer.Option("--capsule", metavar="FILE", help="Write the capsule to this file.")
        ] = None,
    ) -> None:
        _build(common, kind, request, now, capsule)

    build.__doc__ = f"Build a context of kind {kind}, with the builder of another package."
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    cli.register_command(alone, kind, with_identity=True)(build)
    return get_command(alone)


def _build(common: cli.Common, kind: str, request: str | None, now: str | None, capsule: Path | None) -> None:
    from contexture.capsule import pack_capsule
    from contexture.cli.build import fetch_capsule, show_query

    clock, settings = cli.parse_now(now), common.settings()
    body = cli.read_json_object() if request is None else _parse_object(request)
    service = find_service(settings)
    if service is not None:
        built = service.request("POST", f"/v1/context/{kind}", body, now=clock)
        packed = fetch_capsule(service, built["build_id"]) if capsule else b""
    else:
        made = cli.run_with_engine(
            cli.require_store(settings),
            lambda engine: engine.build_kind(kind, body, now=clock),
            action="context.build",
            resource={"kind": kind},
        )
        built, packed = to_wire_json(made.to_dict()), pack_capsule(made.capsule)
    if capsule is not None:
        cli.write_bytes(capsule, packed)
    show_query(common, built)


def _parse_object(text: str) -> dict[str, Any]:
    found = cli.parse_json(text, "the request")
    if not isinstance(found, dict):
        raise InvalidRequest("the request must be a JSON object")
    return cast("dict[str, Any]", found)
