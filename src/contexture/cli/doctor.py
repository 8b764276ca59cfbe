"""`contexture doctor` checks the installation; `contexture settings` lists every setting, its value and its source."""

from typing import Any

import typer

from contexture.cli._common import Common, register_command
from contexture.cli._output import console, print_json


def register_doctor(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "doctor")(doctor)


def doctor(common: Common) -> None:
    """Check every part and show what to install.

    Lists the plug-ins of every group, with the package and version of each. Fails if a required part fails; missing
    optional parts and broken plug-ins are only listed.
    """
    from contexture.cli._output import log_to_stderr
    from contexture.wiring.checks import CheckStatus, run_checks

    log_to_stderr()
    found = run_checks(common.settings())
    broken = any(check.status is CheckStatus.BROKEN for check in found)
    plugins = _list_plugins()
    if common.as_json:
        print_json({"ok": not broken, "checks": found, "plugins": plugins})
    else:
        from rich.text import Text

        from contexture.cli._output import replace_control_chars
        from contexture.cli._tables import table

        styles = {
            CheckStatus.OK: "green",
            CheckStatus.ABSENT: "yellow",
            CheckStatus.INCOMPLETE: "yellow",
            CheckStatus.BROKEN: "red",
        }
        shown = table("part", "status", "details")
        for check in found:
            shown.add_row(
                check.name, Text(check.status.value, styles[check.status]), Text(replace_control_chars(check.detail))
            )
        console().print(shown)
        _print_plugins(plugins)
    if broken:
        raise typer.Exit(1)


def _list_plugins() -> list[dict[str, str]]:
    """Return every installed plug-in and why it cannot be used; none when our own metadata is broken."""
    from contexture.errors import UnknownAdapter
    from contexture.wiring.plugins import check_plugins

    try:
        found = check_plugins()
    except UnknownAdapter:  # which the checks report
        return []
    return [
        {
            "group": plugin.group.value,
            "name": plugin.name,
            "distribution": plugin.distribution,
            "version": plugin.version,
            "problem": plugin.problem,
        }
        for plugin in found
    ]


def _print_plugins(plugins: list[dict[str, str]]) -> None:
    from rich.text import Text

    from contexture.cli._output import replace_control_chars
    from contexture.cli._tables import table

    shown = table("group", "plug-in", "from", "status")
    for each in plugins:
        fine = Text("built in") if each["distribution"] == "contexture-ai" else Text("ok", "green")
        status = Text(replace_control_chars(each["problem"]), "yellow") if each["problem"] else fine
        origin = Text(replace_control_chars(f"{each['distribution']} {each['version']}"))
        shown.add_row(each["group"], Text(replace_control_chars(each["name"])), origin, status)
    console().print(shown)


_HIDDEN = "(hidden)"


def register_settings(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "settings", with_identity=True)(show_settings)


def show_settings(common: Common) -> None:
    """List every setting, its value and its variable."""
    rows = _setting_rows(common)
    if common.as_json:
        print_json({"settings": rows})
        return
    from rich.text import Text

    from contexture.cli._output import replace_control_chars
    from contexture.cli._tables import table

    found = table("variable", "value", "default", "meaning")
    found.columns[0].no_wrap = True
    for row in rows:
        style = "" if row["source"] == "default" else "bold"
        found.add_row(
            row["env"],
            Text(replace_control_chars(_format_value(row["value"])), style),
            _format_value(row["default"]),
            row["description"],
        )
    console().print(found)


def _setting_rows(common: Common) -> list[dict[str, Any]]:
    from contexture.config import Settings

    values = common.settings().model_dump(mode="json")
    fields = Settings.model_fields
    typed = {"home": common.home, "tenant": common.tenant, "user": common.user, "groups": common.group}
    set_somewhere = common.settings().model_fields_set
    return [
        {
            "name": name,
            "env": env,
            "value": _HIDDEN if _is_secret(name, values[name]) else values[name],
            "default": Settings.model_construct().model_dump(mode="json")[name],
            "source": "option" if typed.get(name) else "environment" if name in set_somewhere else "default",
            "description": fields[name].description,
        }
        for name, env in zip(fields, Settings.env_names(), strict=True)
    ]


def _is_secret(name: str, value: object) -> bool:
    """Whether a value must not be shown; a bus, its options and a store may contain a password."""
    signs = ("@", "password", "key=", "token=")
    address = name in ("bus", "store", "truth") and any(sign in str(value).casefold() for sign in signs)
    said = name.endswith(("api_key", "token")) or name == "bus_options" or address
    return said and bool(value)


def _format_value(value: object) -> str:
    if value is None:
        return "not set"
    return '""' if value == "" else str(value)
