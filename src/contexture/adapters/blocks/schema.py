"""The tables of a block store, and how a condition keeps what a scope may not read out of a query."""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE classes (
        class INTEGER PRIMARY KEY, tenant TEXT NOT NULL, acl TEXT NOT NULL, UNIQUE (tenant, acl)
    );
    CREATE TABLE readers (
        class INTEGER NOT NULL, principal TEXT NOT NULL, tenant TEXT NOT NULL, PRIMARY KEY (class, principal)
    ) WITHOUT ROWID;
    CREATE INDEX readers_principal ON readers (tenant, principal, class);
    CREATE TABLE blocks (
        row INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, id TEXT NOT NULL, parent INTEGER,
        position REAL NOT NULL,
        type TEXT NOT NULL, text TEXT NOT NULL, properties TEXT NOT NULL, readers TEXT, class INTEGER NOT NULL,
        author TEXT NOT NULL, created INTEGER NOT NULL, modified INTEGER NOT NULL,
        due INTEGER, done INTEGER NOT NULL, deletion INTEGER, UNIQUE (tenant, id)
    );
    CREATE INDEX blocks_order ON blocks (tenant, parent, class, position, id) WHERE deletion IS NULL;
    CREATE INDEX blocks_below ON blocks (parent);
    CREATE INDEX blocks_due ON blocks (class, done, due, id) WHERE due IS NOT NULL AND deletion IS NULL;
    CREATE INDEX blocks_deletion ON blocks (deletion) WHERE deletion IS NOT NULL;
    CREATE TABLE names (
        tenant TEXT NOT NULL, name TEXT NOT NULL, rank INTEGER NOT NULL, id TEXT NOT NULL, row INTEGER NOT NULL,
        PRIMARY KEY (tenant, name, rank, id)
    ) WITHOUT ROWID;
    CREATE INDEX names_row ON names (row);
    CREATE TABLE links (
        source INTEGER NOT NULL, place INTEGER NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL,
        kind TEXT NOT NULL, label TEXT NOT NULL, target TEXT, name TEXT, modified INTEGER NOT NULL,
        PRIMARY KEY (source, place)
    ) WITHOUT ROWID;
    CREATE INDEX links_target ON links (tenant, target, modified DESC, id) WHERE target IS NOT NULL;
    CREATE INDEX links_name ON links (tenant, name, modified DESC, id) WHERE name IS NOT NULL;
    CREATE TABLE touches (
        tenant TEXT NOT NULL, user TEXT NOT NULL, row INTEGER NOT NULL, deed TEXT NOT NULL, id TEXT NOT NULL,
        count INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (tenant, user, row, deed)
    ) WITHOUT ROWID;
    CREATE INDEX touches_last ON touches (tenant, user, deed, last DESC, id);
    CREATE INDEX touches_row ON touches (row);
    CREATE TABLE deletions (
        number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, root INTEGER NOT NULL, time INTEGER NOT NULL
    );
    CREATE TABLE pending (
        number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, id TEXT NOT NULL, class INTEGER
    );
    CREATE INDEX pending_block ON pending (tenant, id);
    """,
    # Blocks written before there were facts wait to be settled again, which computes them.
    """
    ALTER TABLE blocks ADD COLUMN facts BLOB;
    INSERT INTO pending (tenant, id, class) SELECT tenant, id, class FROM blocks WHERE deletion IS NULL;
    """,
)
"""A link keeps what its text says, an id or a name; what that leads to is looked up for whoever asks."""

DEEPEST = 256
"""Levels of a tree; deeper ones are refused, and no walk upwards goes further."""


def readable(block: str = "b") -> str:
    """The condition that a block, under this name in a query, may be read by one of `:principals`."""
    return (
        f"EXISTS (SELECT 1 FROM readers r WHERE r.class = {block}.class "  # noqa: S608 - a table's name
        "AND r.principal IN (SELECT value FROM json_each(:principals)))"
    )


def columns(block: str = "b") -> str:
    """What `Rows.block` reads of a block; its parent is named only to those who may read that."""
    named = ("id", "type", "text", "position", "properties", "readers", "author", "created", "modified", "class")
    parent = (
        f"(SELECT p.id FROM blocks p WHERE p.row = {block}.parent "  # noqa: S608 - a table's name
        f"AND (p.class = {block}.class OR {readable('p')}))"
    )
    return ", ".join([*(f"{block}.{name}" for name in named), parent])


def family(parent: str, *, beyond: str = "", backwards: bool = False, readers: str = readable("k")) -> str:
    """The rows of the first `:limit` children, in document order, that the scope may read.

    `parent` is an expression for the parent's row. `readers` is a condition on their access class `k.class`. `beyond`
    compares `(c.position, c.id)` with where to begin. Children
    of one access class stand together in the index, so hidden ones are not even walked over: it jumps from class to
    class and takes the first few of each that may be read.
    """
    among = f"c.tenant = :tenant AND c.parent = {parent} AND c.deletion IS NULL"
    way = "DESC" if backwards else ""
    return f"""
    WITH RECURSIVE kinds (class) AS (
        SELECT min(c.class) FROM blocks c INDEXED BY blocks_order WHERE {among}
        UNION ALL
        SELECT (SELECT min(c.class) FROM blocks c INDEXED BY blocks_order WHERE {among} AND c.class > k.class)
        FROM kinds k WHERE k.class IS NOT NULL
    )
    SELECT b.row FROM kinds k CROSS JOIN blocks b ON b.row IN (
        SELECT c.row FROM blocks c INDEXED BY blocks_order WHERE {among} AND c.class = k.class {beyond}
        ORDER BY c.position {way}, c.id {way} LIMIT :limit
    )
    WHERE k.class IS NOT NULL AND {readers} ORDER BY b.position {way}, b.id {way} LIMIT :limit
    """  # noqa: S608 - fixed pieces
