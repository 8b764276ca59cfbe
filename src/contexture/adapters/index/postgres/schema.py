"""Schema of an index in PostgreSQL.

A `part` is one tenant's collection; it comes first in every key, and large tables are partitioned by its hash. Ids,
tenants and texts are bytes, so that any Unicode text can be stored and the sort order is that of Python strings. The
number of a passage is the number of its record, shifted, with its ordinal in the lower bits (`ORDINAL_BITS`).
"""

from contexture.adapters.postgres.pool import Connection, PostgresPool
from contexture.errors import InvalidRequest, SourceUnavailable

ORDINAL_BITS = 20
"""Bits of a passage number that hold the ordinal of the passage in its record."""

EARLIER = "earlier_"
"""Prefix of the tables of the schema before this one, until their records are converted."""

_EARLIER_VERSION = 4
_EARLIER_TABLES = ("counter", "classes", "records", "passages", "vectors", "matrices", "frequencies", "writes")
_PARTITIONS = 16
_PARTITIONED = {
    "records": """
        part INTEGER NOT NULL, record BIGINT NOT NULL, id BYTEA NOT NULL, space BYTEA NOT NULL, class INTEGER NOT NULL,
        passages INTEGER NOT NULL, hash TEXT NOT NULL, header BYTEA NOT NULL, text BYTEA NOT NULL, rules TEXT NOT NULL,
        redactions BYTEA NOT NULL, PRIMARY KEY (part, record), UNIQUE (part, id, space)
    """,
    # Values of filterable fields, apart from the records because filters read many of them; see `filters_sql`.
    "fields": """
        part INTEGER NOT NULL, class INTEGER NOT NULL, record BIGINT NOT NULL, data JSONB NOT NULL,
        PRIMARY KEY (part, class, record)
    """,
    # `vectors` are as they were given, in half precision; searches read the table `vectors`.
    "passages": """
        part INTEGER NOT NULL, pid BIGINT NOT NULL, text BYTEA NOT NULL, facts BYTEA NOT NULL, vectors BYTEA NOT NULL,
        PRIMARY KEY (part, pid)
    """,
    "matrices": """
        part INTEGER NOT NULL, record BIGINT NOT NULL, name TEXT NOT NULL, data BYTEA NOT NULL,
        PRIMARY KEY (part, record, name)
    """,
    # Vectors as the embedded index compares them: whole numbers up to 127, which `halfvec` holds exactly, so that dot
    # products are exact, and a scale. The index alone answers which vectors are near by their sign bits.
    "vectors": """
        part INTEGER NOT NULL, space SMALLINT NOT NULL, class INTEGER NOT NULL, pid BIGINT NOT NULL,
        scale REAL NOT NULL, signs BIT VARYING NOT NULL, codes PUBLIC.HALFVEC NOT NULL,
        PRIMARY KEY (part, space, class, pid) INCLUDE (signs)
    """,
    "postings": """
        part INTEGER NOT NULL, term INTEGER NOT NULL, class INTEGER NOT NULL, pid BIGINT NOT NULL,
        impact SMALLINT NOT NULL, PRIMARY KEY (part, term, class, pid) INCLUDE (impact)
    """,
    "frequencies": """
        part INTEGER NOT NULL, term INTEGER NOT NULL, class INTEGER NOT NULL, passages BIGINT NOT NULL,
        PRIMARY KEY (part, term, class)
    """,
}
_STORAGE = {"passages": "vectors SET STORAGE EXTERNAL", "matrices": "data SET STORAGE EXTERNAL"}
_FILL_FACTORS = {"frequencies": 70}
_SMALL_TABLES = """
    CREATE TABLE store (one BOOLEAN PRIMARY KEY CHECK (one), id UUID NOT NULL, logs BOOLEAN NOT NULL);
    INSERT INTO store VALUES (TRUE, gen_random_uuid(), FALSE);
    CREATE SEQUENCE record_numbers;
    -- `version` is the number of the last write; a write locks the row, and so waits for nobody else's writes.
    CREATE TABLE parts (
        part INTEGER PRIMARY KEY GENERATED ALWAYS AS IDENTITY, tenant BYTEA NOT NULL, name TEXT NOT NULL,
        fields TEXT NOT NULL, version BIGINT NOT NULL, UNIQUE (tenant, name)
    ) WITH (fillfactor = 50);
    CREATE TABLE spaces (
        space SMALLINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name TEXT NOT NULL, size INTEGER NOT NULL,
        UNIQUE (name, size)
    );
    -- Records of a part with the same readers are of one class.
    CREATE TABLE classes (
        class INTEGER PRIMARY KEY GENERATED ALWAYS AS IDENTITY, part INTEGER NOT NULL, digest BYTEA NOT NULL,
        acl BYTEA NOT NULL, private BOOLEAN NOT NULL, passages BIGINT NOT NULL DEFAULT 0, UNIQUE (part, digest)
    ) WITH (fillfactor = 70);
    -- How many vectors a class has in each space.
    CREATE TABLE vector_counts (
        part INTEGER NOT NULL, class INTEGER NOT NULL, space SMALLINT NOT NULL, vectors BIGINT NOT NULL,
        PRIMARY KEY (part, class, space)
    ) WITH (fillfactor = 70);
    -- Readers by digest, as their names may be longer than an index takes.
    CREATE TABLE readers (
        part INTEGER NOT NULL, reader BYTEA NOT NULL, class INTEGER NOT NULL, PRIMARY KEY (part, reader, class)
    );
    -- The recent writes, and the records that each touched; no id stands for more than are listed.
    CREATE TABLE versions (part INTEGER NOT NULL, version BIGINT NOT NULL, PRIMARY KEY (part, version));
    CREATE TABLE touched (part INTEGER NOT NULL, version BIGINT NOT NULL, class INTEGER NOT NULL, id BYTEA);
    CREATE INDEX touched_part ON touched (part, version, class);
    CREATE TABLE unembedded (
        part INTEGER NOT NULL, pid BIGINT NOT NULL, class INTEGER NOT NULL,
        claimed TIMESTAMPTZ NOT NULL DEFAULT '-infinity', PRIMARY KEY (part, pid)
    );
    -- Vector spaces of parts that are searched in an HNSW graph.
    CREATE TABLE graphs (part INTEGER NOT NULL, space SMALLINT NOT NULL, PRIMARY KEY (part, space));
    -- What each write added and removed, in the order of commits, for another search engine; see `store.logs`.
    CREATE TABLE log (
        seq BIGINT PRIMARY KEY, mark UUID NOT NULL, part INTEGER NOT NULL, added BIGINT[] NOT NULL,
        removed BIGINT[] NOT NULL
    );
"""


def _partitioned_tables() -> str:
    statements: list[str] = []
    for table, columns in _PARTITIONED.items():
        fill = f" WITH (fillfactor = {_FILL_FACTORS[table]})" if table in _FILL_FACTORS else ""
        statements.append(f"CREATE TABLE {table} ({columns}) PARTITION BY HASH (part);")
        if table in _STORAGE:
            statements.append(f"ALTER TABLE {table} ALTER COLUMN {_STORAGE[table]};")
        statements += [
            f"CREATE TABLE {table}_{at} PARTITION OF {table} "
            f"FOR VALUES WITH (MODULUS {_PARTITIONS}, REMAINDER {at}){fill};"
            for at in range(_PARTITIONS)
        ]
    return "\n".join(statements)


_SET_ASIDE = f"""
    DO $$ BEGIN
        IF to_regclass('counter') IS NOT NULL THEN
            {" ".join(f"ALTER TABLE {table} RENAME TO {EARLIER}{table};" for table in (*_EARLIER_TABLES, "declared"))}
            DROP TABLE {EARLIER}frequencies, {EARLIER}writes;
        END IF;
    END $$;
"""

MIGRATIONS: tuple[str, ...] = (
    # The first four made and changed the tables of an index that every process copied; `check_earlier_schema` refuses
    # a store that has not had all of them.
    *("",) * _EARLIER_VERSION,
    f"{_SET_ASIDE} CREATE EXTENSION IF NOT EXISTS vector SCHEMA public; {_SMALL_TABLES} {_partitioned_tables()}",
)


def check_earlier_schema(pool: PostgresPool) -> None:
    """Raise `SourceUnavailable` for a store of a version that cannot be converted, and for a server without pgvector.

    Raises `InvalidRequest` when pgvector is installed where searches do not find it.
    """
    with pool.transaction() as db:
        there = db.execute("SELECT to_regclass(%s)", (f"{pool.schema}.migrations",)).fetchone()
        if there is not None and there[0] is not None:
            found = db.execute(f"SELECT version FROM {pool.schema}.migrations".encode()).fetchone()
            if found is not None and found[0] < _EARLIER_VERSION:
                raise SourceUnavailable(
                    f"{pool.name} has version {found[0]} of schema {pool.schema!r}, which this version of contexture "
                    "cannot convert: copy it into a folder with `contexture migrate` of the version that wrote it, and "
                    "from there into a new schema with this one"
                )
        _check_extension(pool, db)


def _check_extension(pool: PostgresPool, db: Connection) -> None:
    row = db.execute(
        "SELECT (SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'), "
        "EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')"
    ).fetchone()
    if row is None or row == (None, False):
        raise SourceUnavailable(f"{pool.name} has no pgvector; install it on the server (0.8 or newer)")
    if row[0] not in {None, "public"}:
        raise InvalidRequest(f"{pool.name} has pgvector in schema {row[0]!r}; ALTER EXTENSION vector SET SCHEMA public")
