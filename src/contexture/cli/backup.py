"""`contexture backup` and `contexture restore`: the store in one file, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.common import Common, command
from contexture.cli.output import emit, note, say
from contexture.cli.progress import watched
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from contexture.adapters.backup.archive import Manifest
    from contexture.config import Settings

_MEGABYTE = 1_000_000


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "backup")(backup)
    command(app, "restore")(restore)


def backup(
    common: Common, file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive to write; it must not exist.")]
) -> None:
    """Write the store into one file.

    Records, memories, sessions, blocks, pictures of pages and keys are copied as they are at one moment, also while
    a service runs. The file is read back and checked before it gets its name. Only its owner can read it.
    """
    from contexture.adapters.backup.write import back_up

    settings = _here(common.settings())
    with watched(as_json=common.as_json) as progress:
        made = back_up(settings.home, file, now=datetime.now(UTC), progress=progress)
    _answer(common, file, made, "holds")
    if settings.pages_index:
        note(f"pages live in {settings.pages_index!r}, which is not part of it")


def restore(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive that `backup` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Replace what the folder holds.")] = False,
) -> None:
    """Put a store back from a backup.

    The archive is checked before anything is written. The search index is built anew when the store is next opened.
    """
    from contexture.adapters.backup.restore import restore as put_back

    settings = _here(common.settings())
    with watched(as_json=common.as_json) as progress:
        made = put_back(file, settings.home, force=force, progress=progress)
    _answer(common, file, made, "gave back")


def _here(settings: Settings) -> Settings:
    if settings.url:
        raise InvalidRequest(f"this reads and writes files: run it where {settings.url} keeps its store")
    if settings.database:
        raise InvalidRequest("the store is in PostgreSQL: back it up and restore it with pg_dump and pg_restore")
    return settings


def _answer(common: Common, file: Path, made: Manifest, verb: str) -> None:
    if common.as_json:
        emit(
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
    size = made.bytes / _MEGABYTE
    say(f"{file} {verb} {len(made.files)} files with {made.rows} rows, {size:.1f} MB; every hash is right")
