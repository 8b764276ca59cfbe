"""`contexture settings`: every setting, its value, and where it came from."""

from __future__ import annotations

from typing import Any

import typer

from contexture.cli.common import Common, command
from contexture.cli.output import console, emit

_HIDDEN = "(hidden)"


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "settings", acting=True)(settings)


def settings(common: Common) -> None:
    """List every setting, its value and its variable."""
    rows = _rows(common)
    if common.as_json:
        emit({"settings": rows})
        return
    from rich.text import Text

    from contexture.cli.output import plain
    from contexture.cli.tables import table

    found = table("variable", "value", "default", "meaning")
    found.columns[0].no_wrap = True
    for row in rows:
        style = "" if row["source"] == "default" else "bold"
        found.add_row(row["env"], Text(plain(_shown(row["value"])), style), _shown(row["default"]), row["description"])
    console().print(found)


def _rows(common: Common) -> list[dict[str, Any]]:
    from contexture.config import Settings

    values = common.settings().model_dump(mode="json")
    fields = Settings.model_fields
    typed = {"home": common.home, "tenant": common.tenant, "user": common.user, "groups": common.group}
    set_somewhere = common.settings().model_fields_set
    return [
        {
            "name": name,
            "env": env,
            "value": _HIDDEN if _secret(name, values[name]) else values[name],
            "default": Settings.model_construct().model_dump(mode="json")[name],
            "source": "option" if typed.get(name) else "environment" if name in set_somewhere else "default",
            "description": fields[name].description,
        }
        for name, env in zip(fields, Settings.env_names(), strict=True)
    ]


def _secret(name: str, value: object) -> bool:
    """Whether a value must not be shown; a bus, its options and a store may hold a password."""
    signs = ("@", "password", "key=", "token=")
    address = name in ("bus", "store", "truth") and any(sign in str(value).casefold() for sign in signs)
    said = name.endswith(("api_key", "token")) or name == "bus_options" or address
    return said and bool(value)


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return '""' if value == "" else str(value)
