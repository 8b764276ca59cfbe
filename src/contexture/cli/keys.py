"""`contexture keys`: manages the API keys of a service."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli._common import Common, register_command
from contexture.cli._output import console, print_json, print_line, print_note
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.ports import KeyStore
    from contexture.types import ApiKey, Right

_SPAN_PATTERN = re.compile(r"([1-9][0-9]{0,5})([hdwy])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer(help="Manage the keys of a service.", no_args_is_help=True, rich_markup_mode=None)
    register_command(group, "add", with_identity=True)(add_key)
    register_command(group, "list")(list_keys)
    register_command(group, "revoke")(revoke_key)
    app.add_typer(group, name="keys")


def add_key(
    common: Common,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for; shown by `list`.")],
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="SPAN", help="Lifetime such as 12h, 30d, 8w or 1y; by default unlimited."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="NAME", help="read, ask, write, act_for or admin; repeatable."),
    ] = None,
) -> None:
    """Create a key that acts as one user of one tenant.

    --tenant, --user and --group set the identity. --scope sets the permissions: `read` to search and build contexts,
    `ask` to get answers of models, `write` to load and delete data, `act_for` to act for other users of the tenant,
    `admin` for everything except `act_for`, including the administration of the service. The default is read, ask and
    write. The key is printed only once.
    """
    from contexture.types import DEFAULT_RIGHTS, Scope

    settings = common.settings()
    now = datetime.now(UTC)
    until = None if expires is None else now + parse_span(expires)
    owner = Scope(tenant=settings.tenant, user=settings.user, groups=settings.groups)
    rights = parse_rights(scope) if scope else DEFAULT_RIGHTS
    made, token = _open_keys(settings).add(name, owner, now=now, expires=until, rights=rights)
    if common.as_json:
        print_json({**_key_object(made, now), "key": token})
        return
    print_line(token)
    print_note(f"this key acts as user {owner.user!r} of tenant {owner.tenant!r}; it is not shown again")


def list_keys(common: Common) -> None:
    """List all keys, without their secret parts."""
    now = datetime.now(UTC)
    rows = [_key_object(key, now) for key in _open_keys(common.settings()).list()]
    if common.as_json:
        print_json({"keys": rows})
        return
    from rich.text import Text

    from contexture.cli._output import replace_control_chars
    from contexture.cli._tables import table

    found = table("id", "name", "tenant", "user", "groups", "scopes", "state", "expires")
    for row in rows:
        until = row["expires"].date().isoformat() if row["expires"] else "never"
        lists = ", ".join(row["groups"]), ", ".join(row["scopes"])
        cells = (row["id"], row["name"], row["tenant"], row["user"], *lists, row["state"], until)
        found.add_row(*(Text(replace_control_chars(cell)) for cell in cells))
    console().print(found if rows else "there are no keys")


def revoke_key(common: Common, key_id: Annotated[str, typer.Argument(metavar="ID", help="Id from `list`.")]) -> None:
    """Revoke a key, with immediate effect also in a running service."""
    now = datetime.now(UTC)
    # The key itself is accepted too, for someone who does not know its id.
    bare = key_id.split("_")[1] if key_id.startswith("ctx_") and key_id.count("_") > 1 else key_id
    row = _key_object(_open_keys(common.settings()).revoke(bare, now=now), now)
    if common.as_json:
        print_json(row)
    else:
        print_line(f"{row['id']} is revoked")


def parse_span(text: str) -> timedelta:
    """Parse a duration such as `30d`."""
    found = _SPAN_PATTERN.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"--expires is {text!r}; write a number and a unit, such as 12h, 30d, 8w or 1y")
    return min(int(found[1]) * _UNITS[found[2]], timedelta(days=36_500))


def parse_rights(names: list[str]) -> list[Right]:
    """Parse the rights of `--scope`, repeated or separated by commas."""
    from contexture.types import Right

    given = [each.strip() for name in names for each in name.split(",")]
    if wrong := [each for each in given if each not in list(Right)]:
        raise InvalidRequest(f"--scope is one of {', '.join(Right)}, not {wrong[0]!r}")
    return [Right(each) for each in given]


def _open_keys(settings: Settings) -> KeyStore:
    from contexture.wiring import api_keys

    return api_keys(settings)


def _key_object(key: ApiKey, now: datetime) -> dict[str, Any]:
    works = key.is_active(now)
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.scope.tenant,
        "user": key.scope.user,
        "groups": key.scope.groups,
        "scopes": sorted(key.rights),
        "created": key.created,
        "expires": key.expires,
        "state": "works" if works else "revoked" if key.revoked else "expired",
    }
