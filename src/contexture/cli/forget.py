"""`contexture forget` erases a user, a session, records or a subject; `contexture audit` proves that an id is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli import _common as cli
from contexture.cli._client import find_service
from contexture.cli._output import print_json, print_line, print_note

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.erasure.request import ForgetRequest


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    cli.register_command(app, "forget")(forget)
    cli.register_command(app, "audit")(audit)


def forget(  # noqa: PLR0913, PLR0917 - one parameter an option
    common: cli.Common,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Forget this user.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Forget this session.")] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", metavar="ID", help="Only this event of the session; repeatable.")
    ] = None,
    record: Annotated[
        list[str] | None, typer.Option("--record", metavar="ID", help="Forget this record; repeatable.")
    ] = None,
    matching: Annotated[
        str | None, typer.Option("--matching", metavar="TEXT", help="Forget what the user said about a subject.")
    ] = None,
    trash: Annotated[bool, typer.Option("--trash", help="Erase what is in the trash of the workspace.")] = False,
    collection: cli.CollectionOption = None,
    tenant: cli.TenantOption = None,
    owner: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Act as this user.")] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="Act as a member of this group; repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase it; without this option it is only shown.")] = False,
) -> None:
    """Erase a user, a session, records or a subject everywhere.

    Removes their texts from records, memories, summaries, sessions, replies, kept builds, the outbox, the graph, caches
    and search. Without --yes, prints what would be removed. With --collection, --record may also name articles, blocks,
    memories or documents (collection `pages`).
    """
    from contexture.erasure.request import ForgetRequest

    settings = replace(common, tenant=tenant, user=user or owner, group=group).settings()
    request = ForgetRequest(
        user_id=user or "",
        session_id=session or "",
        event_ids=tuple(event or ()),
        ids=tuple(record or ()),
        collection=collection or "",
        matching=matching or "",
        trash=trash,
        preview=not yes,
    )
    receipt = _forget(settings, request.with_collection(settings.collection))
    if common.as_json:
        print_json(receipt)
        return
    print_receipt(receipt)


def _forget(settings: Settings, request: ForgetRequest) -> dict[str, Any]:
    service = find_service(settings)
    if service is not None:
        body = {name: value for name in request.__dataclass_fields__ if (value := getattr(request, name))}
        return service.request("POST", "/v1/forget", body)
    return cli.run_with_engine(
        cli.require_store(settings),
        lambda engine: engine.forget(request),
        action="forget",
        resource=request.describe(),
    ).to_dict()


HINT = "nothing was removed; run the command again with --yes"


def print_receipt(receipt: dict[str, Any], *, hint: str = HINT) -> None:
    """Print what matched, what was removed where, and what is out of reach; `hint` follows a preview."""
    for match in receipt["matched"]:
        print_line(f"{match['place']} {match['id']}: {match['text']}")
    for place in receipt["removed"]:
        print_line(f"{place['place']}: {place['count']}")
    if not receipt["removed"]:
        print_line("nothing was found")
    if receipt["rebuilt_summaries"]:
        print_line(f"summaries made again: {receipt['rebuilt_summaries']}")
    for copy in receipt["out_of_reach"]:
        print_note(f"out of reach: {copy}")
    if receipt["preview"] and hint:
        print_note(hint)


def audit(
    common: cli.Common,
    name: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a record, memory, session or message, or a text.")
    ],
) -> None:
    """Search the whole store for an id, to prove that nothing of it is left.

    Reads every table and file of the store, their logs and free space too, for all tenants. An id of fewer than 8
    characters is searched as a whole word in tables only. The exit code is 1 if the id is found.
    """
    from contexture import wiring

    settings = cli.require_store(common.settings())
    found = wiring.audit_store(settings, name)
    unsearched = wiring.unsearched_places(settings)
    if common.as_json:
        places = [{"place": each.place, "count": each.count} for each in found]
        print_json({"id": name, "clean": not found, "found": places, "not_searched": unsearched})
    else:
        for each in found:
            print_line(f"{each.place}: {each.count}")
        for place in unsearched:
            print_note(f"not searched: {place}")
        print_line(f"{name!r} was found in {len(found)} places" if found else f"{name!r} is nowhere in this store")
    if found:
        raise typer.Exit(1)
