"""Schema of the embedded store, as an append-only list of migrations."""

import sqlite3

from contexture.errors import SourceUnavailable

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE collections (name TEXT PRIMARY KEY, fields TEXT NOT NULL) WITHOUT ROWID;
    -- Records with the same tenant and readers share an access class: permissions become one small
    -- number in the index, and term statistics are kept per class so that IDF can be summed over
    -- exactly the classes a scope may read.
    CREATE TABLE classes (
        class INTEGER PRIMARY KEY, collection TEXT NOT NULL, tenant TEXT NOT NULL, acl TEXT NOT NULL,
        passages INTEGER NOT NULL DEFAULT 0, UNIQUE (collection, tenant, acl)
    );
    CREATE TABLE records (
        row INTEGER PRIMARY KEY, collection TEXT NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL,
        class INTEGER NOT NULL REFERENCES classes, hash TEXT NOT NULL, header BLOB NOT NULL, text TEXT NOT NULL,
        rules TEXT NOT NULL, redactions BLOB NOT NULL, UNIQUE (collection, tenant, id)
    );
    CREATE TABLE passages (
        pid INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL REFERENCES records, ordinal INTEGER NOT NULL,
        seq INTEGER NOT NULL, text TEXT NOT NULL, facts BLOB NOT NULL
    );
    -- Apart from the passages, because only a rebuild of the index reads them.
    CREATE TABLE vectors (pid INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE INDEX passages_row ON passages (row);
    CREATE INDEX passages_seq ON passages (seq);
    CREATE TABLE removed (pid INTEGER PRIMARY KEY, collection TEXT NOT NULL, seq INTEGER NOT NULL);
    CREATE TABLE frequencies (
        term INTEGER NOT NULL, class INTEGER NOT NULL, passages INTEGER NOT NULL, PRIMARY KEY (term, class)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE matrices (row INTEGER NOT NULL REFERENCES records, name TEXT NOT NULL, data BLOB NOT NULL);
    CREATE UNIQUE INDEX matrices_row ON matrices (row, name);
    """,
    """
    -- A collection and its fields belong to a tenant. What all of them shared before is declared by each tenant that
    -- has something there; who had nothing makes it anew.
    CREATE TABLE declared (
        tenant TEXT NOT NULL, name TEXT NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (tenant, name)
    ) WITHOUT ROWID;
    INSERT INTO declared SELECT DISTINCT c.tenant, k.name, k.fields
        FROM collections k JOIN classes c ON c.collection = k.name;
    DROP TABLE collections;
    """,
    """
    -- Passages that are stored without vectors and get them later.
    CREATE TABLE unembedded (
        tenant TEXT NOT NULL, pid INTEGER NOT NULL, class INTEGER NOT NULL, PRIMARY KEY (tenant, pid)
    ) WITHOUT ROWID;
    """,
    """
    -- The id of a private record is unique among those of its reader, not in the tenant: see `id_spaces`. Records of
    -- blocks have the ids of the blocks, which are unique in the tenant.
    CREATE TABLE spaced (
        row INTEGER PRIMARY KEY, collection TEXT NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL,
        class INTEGER NOT NULL REFERENCES classes, hash TEXT NOT NULL, header BLOB NOT NULL, text TEXT NOT NULL,
        rules TEXT NOT NULL, redactions BLOB NOT NULL, space TEXT NOT NULL DEFAULT '',
        UNIQUE (collection, tenant, id, space)
    );
    INSERT INTO spaced SELECT r.row, r.collection, r.tenant, r.id, r.class, r.hash, r.header, r.text, r.rules,
            r.redactions, CASE
            WHEN r.collection <> 'blocks' AND json_array_length(c.acl) = 1 AND json_extract(c.acl, '$[0]') GLOB 'user:*'
            THEN json_extract(c.acl, '$[0]') ELSE '~' END
        FROM records r JOIN classes c USING (class) ORDER BY r.row;
    DROP TABLE records;
    ALTER TABLE spaced RENAME TO records;
    """,
    """
    -- The embedded index counts terms and follows removals in memory; `SqliteRecordStore` makes this table again for
    -- search indexes on a server.
    DROP TABLE IF EXISTS frequencies;
    DELETE FROM removed;
    """,
)


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate the tables to the newest version; raises `SourceUnavailable` for a store of a newer package."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise SourceUnavailable(
            f"this store has schema {version} but this version of contexture knows {len(MIGRATIONS)}; "
            "upgrade contexture"
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")
