"""`contexture backup`, `restore`, `salvage`, `rebuild`, `migrate` and `reindex`: store files, copied and repaired."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from contexture.cli._client import find_service
from contexture.cli._common import Common, register_command, require_store, run_with_engine
from contexture.cli._output import print_json, print_line, print_note, show_progress
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.wiring import BackupManifest


_BYTES_PER_MB = 1_000_000


def register_backup(app: typer.Typer) -> None:
    """Add the commands to the app."""
    register_command(app, "backup")(backup)
    register_command(app, "restore")(restore)
    register_command(app, "salvage")(salvage)
    register_command(app, "rebuild")(rebuild)


def backup(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive to write; it must not exist yet.")],
) -> None:
    """Write a backup of the store to one file.

    The backup is a consistent snapshot of records, memories, sessions, blocks, pictures of pages and keys, also while
    a service runs. The store is checked for damage, and the file is verified by opening it before it gets its name.
    Only its owner can read it.
    """
    from contexture.wiring import back_up

    settings = _require_folder_store(common.settings())
    with show_progress(as_json=common.as_json) as progress:
        made = back_up(settings.home, file, now=datetime.now(UTC), progress=progress)
    _print_manifest(common, file, made, "contains")
    if settings.pages_index:
        print_note(f"the backup does not contain the index of pages in {settings.pages_index!r}")


def restore(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive that `backup` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the contents of the folder.")] = False,
) -> None:
    """Restore a store from a backup.

    The archive is verified before anything is written.
    """
    from contexture.wiring import restore_backup

    settings = _require_folder_store(common.settings())
    with show_progress(as_json=common.as_json) as progress:
        made = restore_backup(file, settings.home, force=force, progress=progress)
    _print_manifest(common, file, made, "restored:")


def salvage(
    common: Common,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for what can still be read.")],
) -> None:
    """Copy everything readable from a damaged store to a new store.

    The damaged store is not changed. Records whose computed parts are lost are prepared again; tables and files with
    unreadable parts are listed. Caches are not copied, and are filled again during use.
    """
    from contexture.wiring import salvage_store

    settings = _require_folder_store(common.settings())
    with show_progress(as_json=common.as_json) as progress:
        report = salvage_store(settings, folder, progress)
    if common.as_json:
        print_json({"folder": folder, **asdict(report)})
        return
    print_line(f"{folder} has {report.records} records, {report.rows} other rows and {report.files} files")
    if report.prepared:
        print_line(f"{report.prepared} records had lost parts and were prepared again")
    if report.dropped:
        print_note(f"{report.dropped} records or rows are left out, because they are not what was stored")
    for name in report.incomplete:
        print_note(f"parts of {name} could not be read")


def rebuild(common: Common) -> None:
    """Build the caches and damaged SQL indexes of the store again.

    A damaged table needs `contexture restore` or `contexture salvage`.
    """
    from contexture.cli._common import require_store, run_with_engine
    from contexture.wiring import delete_derived_files

    settings = require_store(_require_folder_store(common.settings()))
    done = delete_derived_files(settings)

    async def warm(engine: Contexture) -> None:
        await engine.index.warm()

    run_with_engine(settings, warm)  # fails if the records cannot be read
    if common.as_json:
        print_json({"rebuilt": done})
    else:
        print_line(f"built again: {', '.join(done) or 'nothing was there to build'}")


def _require_folder_store(settings: Settings) -> Settings:
    if settings.url:
        raise InvalidRequest(f"backups read and write files: run this on the machine of {settings.url}")
    if settings.database:
        raise InvalidRequest("the store is in PostgreSQL: back it up and restore it with pg_dump and pg_restore")
    if settings.in_plugin:
        raise InvalidRequest("the records are in an index of another package: back them up with the tools for it")
    return settings


def _print_manifest(common: Common, file: Path, made: BackupManifest, verb: str) -> None:
    if common.as_json:
        print_json(
            {
                "file": file,
                "created": made.created,
                "version": made.version,
                "files": len(made.files),
                "bytes": made.bytes,
                "rows": made.rows,
            }
        )
        return
    size = made.bytes / _BYTES_PER_MB
    print_line(f"{file} {verb} {len(made.files)} files with {made.rows} rows, {size:.1f} MB; all hashes match")


def register_migrate(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "migrate")(migrate)


def migrate(
    common: Common,
    source: Annotated[str, typer.Option("--from", metavar="STORE", help="Folder, or postgres://HOST/NAME.")],
    target: Annotated[str, typer.Option("--to", metavar="STORE", help="Folder, or postgres://HOST/NAME.")],
) -> None:
    """Copy everything in one store to another store.

    Stop all processes that use either store first. Identical data in the target is skipped, so an interrupted migration
    can be run again. At the end the contents of both stores are compared.
    """
    from contexture.wiring import migrate_store, open_migration_store

    with (
        closing(open_migration_store(source, existing=True)) as first,
        closing(open_migration_store(target, existing=False)) as second,
        show_progress(as_json=common.as_json) as progress,
    ):
        moved = migrate_store(first, second, progress)
    if common.as_json:
        print_json({"records": moved.records, "rows": moved.rows, "files": moved.files, "known": moved.known_records})
        return
    print_line(
        f"{moved.records} records, {moved.rows} other rows and {moved.files} files are identical in both stores; "
        f"{moved.known_records} records were already there"
    )


_STATE_FILE = "reindex.json"


class _Position(msgspec.Struct, frozen=True):
    """Where an interrupted run continues; `identity` says for whom, and with which embedders."""

    identity: tuple[str, ...]
    collection: str = ""
    after: str = ""
    records: int = 0


def register_reindex(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "reindex", with_identity=True)(reindex)


def reindex(common: Common) -> None:
    """Compute again the vectors and terms of all records that you may read.

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
