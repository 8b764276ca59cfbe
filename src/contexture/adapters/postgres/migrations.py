"""Schema migrations in PostgreSQL; each runs once, also with several processes."""

from contexture.adapters.postgres.pool import Connection, PostgresPool
from contexture.errors import SourceUnavailable

_MIGRATION_LOCK = 0x636F6E74657874  # "context" in ASCII: an advisory lock key that other programs are unlikely to use
_CREATE_TABLE = "CREATE TABLE IF NOT EXISTS migrations (one BOOLEAN PRIMARY KEY CHECK (one), version INTEGER NOT NULL)"


def migrate(pool: PostgresPool, schema: str, migrations: tuple[str, ...]) -> None:
    """Migrate the tables of a schema to the newest version; raises `SourceUnavailable` for those of a newer package.

    Several processes may call it at once: one migrates, the others wait for it.
    """
    with pool.transaction() as db:
        if _version(db, schema) == len(migrations):
            return
        _check_encoding(pool, db)
    with pool.transaction() as db:
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        # Checked, because CREATE SCHEMA IF NOT EXISTS needs the right to create even if the schema exists.
        if db.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,):
            db.execute(f"CREATE SCHEMA {schema}".encode())
        db.execute(f"SET LOCAL search_path TO {schema}".encode())
        db.execute(_CREATE_TABLE)
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


def has_schema(pool: PostgresPool, schema: str) -> bool:
    """Whether the schema has tables of any version."""
    with pool.transaction() as db:
        return _version(db, schema) > 0


def _check_encoding(pool: PostgresPool, db: Connection) -> None:
    found = db.info.parameter_status("server_encoding")
    if found != "UTF8":
        raise SourceUnavailable(f"{pool.name} has the encoding {found}; create the database WITH ENCODING 'UTF8'")


def _version(db: Connection, schema: str) -> int:
    there = db.execute("SELECT to_regclass(%s)", (f"{schema}.migrations",)).fetchone()
    if there is None or there[0] is None:
        return 0
    found = db.execute(f"SELECT version FROM {schema}.migrations".encode()).fetchone()  # noqa: S608 - a checked name
    return int(found[0]) if found else 0
