"""Migrations of a part's tables: each is run once, whoever comes first."""

from __future__ import annotations

from contexture.adapters.postgres.pool import Connection, Pool
from contexture.errors import SourceUnavailable

_LOCK = 0x636F6E74657874  # "context", as a number that others are unlikely to choose
_TABLE = "CREATE TABLE IF NOT EXISTS migrations (one BOOLEAN PRIMARY KEY CHECK (one), version INTEGER NOT NULL)"


def migrate(pool: Pool, schema: str, migrations: tuple[str, ...]) -> None:
    """Bring the tables in a schema to the newest version; refuse those of a newer package.

    Several processes may come at once: one migrates, the others wait and find it done.
    """
    with pool.transaction() as db:
        if _version(db, schema) == len(migrations):
            return
        _check_encoding(pool, db)
    with pool.transaction() as db:
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if db.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,):  # else the right would be needed
            db.execute(f"CREATE SCHEMA {schema}".encode())
        db.execute(f"SET LOCAL search_path TO {schema}".encode())
        db.execute(_TABLE)
        version = _version(db, schema)
        if version > len(migrations):
            raise SourceUnavailable(
                f"{pool.name} has version {version} of schema {schema!r} but this version of contexture knows "
                f"{len(migrations)}; upgrade contexture"
            )
        for script in migrations[version:]:
            db.execute(script.encode())
        db.execute(
            "INSERT INTO migrations VALUES (TRUE, %s) ON CONFLICT (one) DO UPDATE SET version = excluded.version",
            (len(migrations),),
        )


def is_made(pool: Pool, schema: str) -> bool:
    """Whether a schema has tables of any version."""
    with pool.transaction() as db:
        return _version(db, schema) > 0


def _check_encoding(pool: Pool, db: Connection) -> None:
    found = db.info.parameter_status("server_encoding")
    if found != "UTF8":
        raise SourceUnavailable(f"{pool.name} keeps texts as {found}; make a database WITH ENCODING 'UTF8'")


def _version(db: Connection, schema: str) -> int:
    there = db.execute("SELECT to_regclass(%s)", (f"{schema}.migrations",)).fetchone()
    if there is None or there[0] is None:
        return 0
    found = db.execute(f"SELECT version FROM {schema}.migrations".encode()).fetchone()  # noqa: S608 - a checked name
    return int(found[0]) if found else 0
