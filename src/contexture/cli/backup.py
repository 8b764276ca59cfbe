"""`contexture backup`, `restore`, `salvage`, `rebuild` and `migrate`: store files, and the ways back from damage."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli._common import Common, register_command
from contexture.cli._output import print_json, print_line, print_note, show_progress
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
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

    The archive is verified before anything is written. The search index is rebuilt when the store is next opened.
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
    """Copy everything that can be read of a damaged store to a new one.

    The damaged store is not changed. Records whose computed parts are lost are prepared again; tables and files with
    unreadable parts are named. Caches and the search index are left out, and are filled again by use.
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
    """Build the search index and the caches again.

    The index is read from the records of the store. Damaged SQL indexes are built again too; a damaged table needs
    `contexture restore` or `contexture salvage`.
    """
    from contexture.cli._common import require_store, run_with_engine
    from contexture.wiring import delete_derived_files

    settings = require_store(_require_folder_store(common.settings()))
    done = delete_derived_files(settings)

    async def warm(engine: Contexture) -> None:
        await engine.index.warm()

    run_with_engine(settings, warm)  # opening the store fills the index
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
    """Copy everything in one store to another.

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
