"""`contexture backup`, `restore` and `migrate`: write a store to a file, restore it, or copy it to another store."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.common import Common, register_command
from contexture.cli.output import print_json, print_line, print_note, show_progress
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.wiring import BackupManifest


_BYTES_PER_MB = 1_000_000


def register_backup(app: typer.Typer) -> None:
    """Add the commands to the app."""
    register_command(app, "backup")(backup)
    register_command(app, "restore")(restore)


def backup(
    common: Common, file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive to write; it must not exist.")]
) -> None:
    """Write the store into one file.

    Records, memories, sessions, blocks, pictures of pages and keys are copied as they are at one moment, also while
    a service runs. The file is read back and checked before it gets its name. Only its owner can read it.
    """
    from contexture.wiring import back_up

    settings = _require_folder_store(common.settings())
    with show_progress(as_json=common.as_json) as progress:
        made = back_up(settings.home, file, now=datetime.now(UTC), progress=progress)
    _print_manifest(common, file, made, "holds")
    if settings.pages_index:
        print_note(f"pages live in {settings.pages_index!r}, which is not part of it")


def restore(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive that `backup` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Replace what the folder holds.")] = False,
) -> None:
    """Put a store back from a backup.

    The archive is checked before anything is written. The search index is built anew when the store is next opened.
    """
    from contexture.wiring import restore_backup

    settings = _require_folder_store(common.settings())
    with show_progress(as_json=common.as_json) as progress:
        made = restore_backup(file, settings.home, force=force, progress=progress)
    _print_manifest(common, file, made, "gave back")


def _require_folder_store(settings: Settings) -> Settings:
    if settings.url:
        raise InvalidRequest(f"this reads and writes files: run it where {settings.url} keeps its store")
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
    print_line(f"{file} {verb} {len(made.files)} files with {made.rows} rows, {size:.1f} MB; every hash is right")


def register_migrate(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "migrate")(migrate)


def migrate(
    common: Common,
    source: Annotated[str, typer.Option("--from", metavar="STORE", help="Folder, or postgres://HOST/NAME.")],
    target: Annotated[str, typer.Option("--to", metavar="STORE", help="Folder, or postgres://HOST/NAME.")],
) -> None:
    """Write everything that one store holds into another.

    Stop what uses either of them first. What is there already is left alone: a move that was cut short is started
    again and goes on. At the end both are compared, by number and content.
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
        f"{moved.records} records, {moved.rows} other rows and {moved.files} files are the same in both; "
        f"{moved.known_records} records were there before"
    )
