"""Small files in PostgreSQL, by place and name: build capsules, page images, a store's salt."""

import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import cast

from contexture.adapters.builds import BuildCatalog, tenant_of_capsule
from contexture.adapters.postgres.pool import PostgresPool
from contexture.adapters.postgres.tables import PostgresTables
from contexture.conversation import ErasureTarget
from contexture.errors import NotFound
from contexture.types import Scope

_MIGRATIONS = (
    """
    CREATE TABLE files (
        place TEXT NOT NULL, name TEXT NOT NULL, number BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
        data BYTEA NOT NULL, PRIMARY KEY (place, name)
    );
    CREATE INDEX files_number ON files (place, number);
    """,
    # Who a file counts for where a place keeps only so many; empty for files written before.
    """
    ALTER TABLE files ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    """,
)
_BUILDS_PLACE = "builds"
_BUILD_ID = re.compile(r"ctx-[0-9a-f]{12}")


class PostgresFiles:
    """Writes, reads and removes whole files."""

    def __init__(self, pool: PostgresPool) -> None:
        self._tables = PostgresTables(pool, "files", _MIGRATIONS)

    def names(self) -> Sequence[tuple[str, str]]:
        """Place and name of every file, oldest first."""
        rows = self._tables.run(lambda db: db.execute("SELECT place, name FROM files ORDER BY number").fetchall())
        return [(place, name) for place, name in rows]

    def write(self, place: str, name: str, data: bytes, *, owner: str = "") -> None:
        """Write a file; an existing one is replaced."""
        self._tables.run(
            lambda db: db.execute(
                "INSERT INTO files (place, name, data, owner) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (place, name) DO UPDATE SET data = excluded.data, owner = excluded.owner",
                (place, name, data, owner),
            )
        )

    def write_if_absent(self, place: str, name: str, data: bytes) -> bytes:
        """Write a file unless it exists; returns the stored content."""
        if (found := self.read(place, name)) is not None:  # works on a read-only database too
            return found

        def work(db: sqlite3.Connection) -> bytes:
            query = "INSERT INTO files (place, name, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            db.execute(query, (place, name, data))
            return cast("bytes", db.execute(_SELECT_DATA, (place, name)).fetchone()[0])

        return self._tables.run(work)

    def read(self, place: str, name: str) -> bytes | None:
        """Content of a file; None if it does not exist."""
        found = self._tables.run(lambda db: db.execute(_SELECT_DATA, (place, name)).fetchone())
        return None if found is None else found[0]

    def remove(self, place: str, name: str) -> None:
        """Remove a file if it exists."""
        self._tables.run(lambda db: db.execute("DELETE FROM files WHERE place = ? AND name = ?", (place, name)))

    def keep_newest(self, place: str, most: int) -> None:
        """Remove files of a place until `most` are left: the oldest of the owner with the most, then again."""

        def work(db: sqlite3.Connection) -> None:
            rows = db.execute("SELECT number, owner FROM files WHERE place = ? ORDER BY number", (place,)).fetchall()
            while len(rows) > most:
                ((largest, _),) = Counter(owner for _, owner in rows).most_common(1)
                oldest = next(row for row in rows if row[1] == largest)
                rows.remove(oldest)
                db.execute("DELETE FROM files WHERE place = ? AND number = ?", (place, oldest[0]))

        self._tables.run(work)


_SELECT_DATA = "SELECT data FROM files WHERE place = ? AND name = ?"


class PostgresBuilds:
    """Stores the capsules of the last `keep` builds of all processes, shared between tenants like those in a folder."""

    def __init__(self, files: PostgresFiles, keep: int) -> None:
        self._files = files
        self._keep = keep
        self._catalog = BuildCatalog()

    def save(self, build_id: str, capsule: bytes) -> None:
        """Write one capsule atomically; does nothing if `keep` is 0."""
        if self._keep:
            self._files.write(_BUILDS_PLACE, build_id, capsule, owner=tenant_of_capsule(capsule))
            self._files.keep_newest(_BUILDS_PLACE, self._keep)

    def load(self, build_id: str) -> bytes:
        """The capsule of a build; raises `NotFound` for unknown and malformed ids alike."""
        found = self._files.read(_BUILDS_PLACE, build_id) if _BUILD_ID.fullmatch(build_id) else None
        if found is None:
            raise NotFound(f"no build {build_id!r} is stored here")
        return found

    async def erase(self, scope: Scope, target: ErasureTarget, *, preview: bool = False) -> Sequence[str]:
        """Remove the builds of all processes that copy the target's texts; returns their ids."""
        return await asyncio.to_thread(self._erase, scope, target, preview=preview)

    def _erase(self, scope: Scope, target: ErasureTarget, *, preview: bool) -> list[str]:
        names = [name for place, name in self._files.names() if place == _BUILDS_PLACE]
        found = self._catalog.find_copies(names, self.load, scope, target)
        for name in () if preview else found:
            self._files.remove(_BUILDS_PLACE, name)
        return found
