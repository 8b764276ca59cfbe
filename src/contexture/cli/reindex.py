"""`contexture reindex` computes vectors and terms of stored records anew, after a change of embedder or version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from contexture.cli._client import find_service
from contexture.cli._common import Common, register_command, require_store, run_with_engine
from contexture.cli._output import print_json, print_line, show_progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from contexture.config import Settings

_STATE_FILE = "reindex.json"


class _Position(msgspec.Struct, frozen=True):
    """Where an interrupted run continues; `identity` says for whom, and with which embedders."""

    identity: tuple[str, ...]
    collection: str = ""
    after: str = ""
    records: int = 0


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "reindex", with_identity=True)(reindex)


def reindex(common: Common) -> None:
    """Compute the vectors and terms of all records that you may read again.

    Needed once after a change of CONTEXTURE_EMBEDDER or an upgrade that improves search; until then records are found
    by their old vectors. Runs beside a service, and continues where an interrupted run ended.
    """
    settings = require_store(common.settings())
    state = settings.home / _STATE_FILE
    position = _read_position(state, settings)
    with show_progress(as_json=common.as_json) as progress:
        records = _run_steps(settings, state, position, progress)
    state.unlink(missing_ok=True)
    if common.as_json:
        print_json({"records": records})
    else:
        print_line(f"{records} records indexed again")


def _run_steps(
    settings: Settings, state: Path, position: _Position, progress: Callable[[str, int, int], None] | None
) -> int:
    def follow(step: dict[str, Any], position: _Position) -> _Position:
        moved = _Position(position.identity, step["collection"], step["after"], position.records + step["records"])
        if not step["done"]:
            _write_position(state, moved)
            if progress is not None:
                progress(f"reindex {moved.collection}", moved.records, 0)
        return moved

    service = find_service(settings)
    if service is not None:
        while True:
            body = {"collection": position.collection, "after": position.after}
            step = service.request("POST", "/v1/ingest/reindex", body)
            position = follow(step, position)
            if step["done"]:
                return position.records

    async def run(engine: Any) -> int:
        here = position
        while True:
            step = await engine.reindexer.step(engine.scope, collection=here.collection, after=here.after)
            here = follow(step.to_dict(), here)
            if step.done:
                await engine.index.optimize()
                return here.records

    return run_with_engine(settings, run)


def _write_position(state: Path, position: _Position) -> None:
    """Replace the file as a whole; it is for its owner alone, because ids may say much."""
    draft = state.with_name(f"{state.name}.draft")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(msgspec.json.encode(position))
    draft.replace(state)


def _read_position(state: Path, settings: Settings) -> _Position:
    """Where the last run ended if it was interrupted and did the same; otherwise the beginning."""
    identity = (settings.tenant, settings.user, *settings.groups, settings.embedder, settings.embedder_multilingual)
    try:
        found = msgspec.json.decode(state.read_bytes(), type=_Position)
    except (OSError, msgspec.DecodeError):
        return _Position(identity)
    return found if found.identity == identity else _Position(identity)
