"""`contexture build workspace`: the context of a request over the workspace."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.capsules import fetched
from contexture.cli.common import Common, with_engine
from contexture.cli.inputs import moment, object_on_stdin, write_bytes
from contexture.cli.output import console, emit, note
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings


def workspace(
    common: Common,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="The query; without it a request is read as JSON.")
    ] = None,
    block: Annotated[str | None, typer.Option("--block", metavar="ID", help="The block in focus.")] = None,
    page: Annotated[str | None, typer.Option("--page", metavar="ID", help="The page in focus.")] = None,
    database: Annotated[str | None, typer.Option("--database", metavar="ID", help="The database in focus.")] = None,
    total: Annotated[int | None, typer.Option("--tokens", metavar="N", help="Token budget.")] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Take this as the clock.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write what `replay` needs to this file.")
    ] = None,
) -> None:
    """Build the context of a QUERY over the workspace, or of the request on standard input.

    A request is an object with `query`, and may have `focus`, `type`, `user`, `conversationHistory`, `tokenBudget` and
    `hints`.
    """
    clock = moment(now)
    asked: dict[str, Any] = object_on_stdin() if query is None else {"query": query}
    focus = {"blockId": block, "pageId": page, "databaseId": database}
    if any(focus.values()):
        asked = {**asked, "focus": {name: value for name, value in focus.items() if value}}
    if total is not None:
        asked = {**asked, "tokenBudget": {**(asked.get("tokenBudget") or {}), "total": total}}
    built, packed = _built(common.settings(), asked, clock, capsule=capsule is not None)
    if capsule is not None:
        write_bytes(capsule, packed)
    if common.as_json:
        emit(built)
    else:
        _print(built)
        note(f"explain it: contexture explain {built['buildId']} {common.retyped()}".rstrip())


def _built(
    settings: Settings, asked: dict[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    door = remote(settings)
    if door is not None:
        found = door.ask("POST", "/v1/context/workspace", asked, now=clock)
        return found, fetched(door, found["buildId"]) if capsule else b""
    from contexture.adapters.tokens.models import counter_for
    from contexture.capsule import pack_capsule
    from contexture.service.wire.workspace import workspace_object

    built = with_engine(settings, lambda engine: engine.build_workspace(asked, scope=engine.scope, now=clock))
    return as_sent(workspace_object(built, counter_for(settings.model))), pack_capsule(built.capsule)


def _print(built: dict[str, Any]) -> None:
    from contexture.cli.output import plain
    from contexture.cli.tables import losses

    out, about = console(), built["metadata"]
    out.print(plain(built["serialized"]))
    spent = ", ".join(f"{section['type']} {section['tokenCount']}" for section in built["sections"])
    out.print(f"{built['buildId']}: {about['totalTokens']} tokens: {spent}")
    out.print(f"{about['blocksIncluded']} of {about['blocksConsidered']} blocks, from "
              f"{', '.join(about['collectorsUsed']) or 'no collector'}")  # fmt: skip
    for line in losses(degradations_of(built)):
        out.print(line)
