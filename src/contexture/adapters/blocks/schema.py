"""The tables of a block store in SQLite.

Migrations, SQL fragments for access control, row decoding, and access classes.

Every scoped query filters with `readable_condition`; writers see full rows, hidden and deleted ones too.
"""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import msgspec

from contexture.adapters.sqlite import check_storable
from contexture.types import Scope
from contexture.workspace import Block, BlockType

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
    # Queues all blocks for re-indexing, which computes their facts.
    """
    ALTER TABLE blocks ADD COLUMN facts BLOB;
    INSERT INTO pending (tenant, id, class) SELECT tenant, id, class FROM blocks WHERE deletion IS NULL;
    """,
    # Queues tasks, rows and pages for re-indexing, which computes their cells.
    """
    CREATE TABLE cells (
        tenant TEXT NOT NULL, value TEXT NOT NULL, name TEXT NOT NULL, shown TEXT NOT NULL, row INTEGER NOT NULL,
        PRIMARY KEY (tenant, value, name, shown, row)
    ) WITHOUT ROWID;
    CREATE INDEX cells_row ON cells (row, name, value, shown);
    CREATE INDEX blocks_modified ON blocks (tenant, modified DESC, id) WHERE deletion IS NULL;
    CREATE INDEX touches_time ON touches (tenant, deed, last DESC, id);
    INSERT INTO pending (tenant, id, class) SELECT tenant, id, class FROM blocks
    WHERE deletion IS NULL AND type IN ('todo', 'kanban_card', 'db_row', 'db', 'page');
    """,
    # Blocks that are stored already have no creator: those who may edit them manage them.
    """
    ALTER TABLE blocks ADD COLUMN creator TEXT;
    ALTER TABLE blocks ADD COLUMN editors TEXT;
    ALTER TABLE blocks ADD COLUMN managers TEXT;
    ALTER TABLE blocks ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
    CREATE TABLE displaced (
        deletion INTEGER NOT NULL, row INTEGER NOT NULL, parent INTEGER NOT NULL, home INTEGER, readers TEXT,
        PRIMARY KEY (deletion, row)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE blocks ADD COLUMN writer TEXT;
    ALTER TABLE blocks ADD COLUMN written INTEGER;
    ALTER TABLE deletions ADD COLUMN writer TEXT;
    CREATE TABLE revisions (
        row INTEGER NOT NULL, version INTEGER NOT NULL, type TEXT NOT NULL, text TEXT NOT NULL,
        properties TEXT NOT NULL, class INTEGER NOT NULL, writer TEXT NOT NULL, written INTEGER NOT NULL,
        PRIMARY KEY (row, version)
    ) WITHOUT ROWID;
    CREATE INDEX blocks_top ON blocks (tenant, position, id) WHERE parent IS NULL AND deletion IS NULL;
    CREATE INDEX blocks_shared ON blocks (tenant, position, id)
    WHERE readers IS NOT NULL AND parent IS NOT NULL AND deletion IS NULL;
    CREATE INDEX deletions_tenant ON deletions (tenant, number);
    """,
)
"""A link stores the id or name from its text; its target is resolved per scope when it is read."""

MAX_DEPTH = 256
"""Maximum depth of a tree; deeper writes are refused, and walks upwards stop here."""


def readable_condition(block: str = "b") -> str:
    """SQL condition: block `block` may be read by one of `:principals`."""
    return (
        f"EXISTS (SELECT 1 FROM readers r WHERE r.class = {block}.class "  # noqa: S608 - a table's name
        "AND r.principal IN (SELECT value FROM json_each(:principals)))"
    )


def block_columns(block: str = "b") -> str:
    """Columns that `BlockDecoder.decode_block` reads; the parent id is NULL where the scope may not read the parent."""
    named = (
        "id", "type", "text", "position", "properties", "readers", "author", "created", "modified", "class",
        "creator", "editors", "managers", "version",
    )  # fmt: skip
    parent = (
        f"(SELECT p.id FROM blocks p WHERE p.row = {block}.parent "  # noqa: S608 - a table's name
        f"AND (p.class = {block}.class OR {readable_condition('p')}))"
    )
    return ", ".join([*(f"{block}.{name}" for name in named), parent])


def children_query(
    parent: str, *, after_condition: str = "", descending: bool = False, access_condition: str = readable_condition("k")
) -> str:
    """SQL query for the rows of the first `:limit` readable children, in document order.

    `parent` is an SQL expression for the parent's row. `access_condition` is a condition on the access class `k.class`.
    `after_condition` compares `(c.position, c.id)` with the start position. Children of one access class are adjacent
    in the index, so hidden ones are never scanned: the query skips from class to class and takes the first `:limit` of
    each readable one.
    """
    among = f"c.tenant = :tenant AND c.parent = {parent} AND c.deletion IS NULL"
    way = "DESC" if descending else ""
    return f"""
    WITH RECURSIVE kinds (class) AS (
        SELECT min(c.class) FROM blocks c INDEXED BY blocks_order WHERE {among}
        UNION ALL
        SELECT (SELECT min(c.class) FROM blocks c INDEXED BY blocks_order WHERE {among} AND c.class > k.class)
        FROM kinds k WHERE k.class IS NOT NULL
    )
    SELECT b.row FROM kinds k CROSS JOIN blocks b ON b.row IN (
        SELECT c.row FROM blocks c INDEXED BY blocks_order WHERE {among} AND c.class = k.class {after_condition}
        ORDER BY c.position {way}, c.id {way} LIMIT :limit
    )
    WHERE k.class IS NOT NULL AND {access_condition} ORDER BY b.position {way}, b.id {way} LIMIT :limit
    """  # noqa: S608 - fixed pieces


SqlParams: TypeAlias = dict[str, str | int | float | None]

_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MIN_MICROSECONDS, _MAX_MICROSECONDS = (
    (datetime(*end, tzinfo=UTC) - _EPOCH) // _MICROSECOND for end in ((1, 1, 1), (9999, 12, 31, 23, 59, 59, 999_999))
)
_decode_properties = msgspec.json.Decoder(dict[str, Any]).decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_encode_list = msgspec.json.Encoder(enc_hook=str).encode  # subclasses of str are encoded as text
_BLOCK_TYPES = {str(kind): kind for kind in BlockType}
MAX_LIMIT = 1 << 31
"""A limit that no store reaches; SQLite accepts none beyond 64 bits."""


class BlockDecoder:
    """Decodes rows into blocks; caches the readers of an access class, which never change."""

    def __init__(self) -> None:
        self._acls: dict[int, tuple[str, ...]] = {}

    def decode_blocks(self, db: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> list[Block]:
        """Decode rows selected with `block_columns`."""
        return [self.decode_block(db, row) for row in rows]

    def decode_block(self, db: sqlite3.Connection, row: Sequence[Any]) -> Block:
        """Decode one row; columns after those of `block_columns` are ignored."""
        id_, kind, text, position, properties, readers, author, created, modified, access = row[:10]
        creator, editors, managers, version, parent = row[10:15]
        return Block(
            id=id_,
            type=_BLOCK_TYPES[kind],
            text=text,
            parent=parent,
            order=position,
            properties=_decode_properties(properties),
            readers=None if readers is None else _decode_names(readers),
            author=author,
            created=from_microseconds(created),
            modified=from_microseconds(modified),
            acl=self.get_acl(db, access),
            creator=(creator or "").removeprefix("user:"),
            editors=None if editors is None else _decode_names(editors),
            managers=None if managers is None else _decode_names(managers),
            version=version,
        )

    def get_acl(self, db: sqlite3.Connection, access: int) -> tuple[str, ...]:
        """Principals of an access class."""
        found = self._acls.get(access)
        if found is None:
            row = db.execute("SELECT acl FROM classes WHERE class = ?", (access,)).fetchone()
            found = self._acls[access] = _decode_names(row[0]) if row else ()
        return found


def scope_params(scope: Scope, **more: str | float | None) -> SqlParams:
    """Parameters common to every scoped query, and `more`."""
    check_storable("the user", scope.user)
    return {"tenant": check_storable("the tenant", scope.tenant), "principals": encode_ids(scope.principals), **more}


def encode_ids(ids: Iterable[str]) -> str:
    """Ids as a JSON list parameter, without duplicates and without ids that SQLite cannot compare."""
    return _encode_list(drop_unstorable_ids(ids)).decode()


def drop_unstorable_ids(ids: Iterable[str]) -> list[str]:
    """Ids that SQLite can compare, without duplicates."""
    names = list(dict.fromkeys(ids))
    # One check of all ids joined is cheaper, and nearly always passes.
    return names if is_storable_id("".join(names)) else [name for name in names if is_storable_id(name)]


def clamp_limit(limit: int) -> int:
    """Limit between 0 and `MAX_LIMIT`."""
    return min(max(0, limit), MAX_LIMIT)


def to_microseconds(time: datetime) -> int:
    """Time as microseconds since the epoch, clamped to the years 1 to 9999; naive times are UTC."""
    number = ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    return min(max(number, _MIN_MICROSECONDS), _MAX_MICROSECONDS)


def from_microseconds(number: int) -> datetime:
    """UTC time from microseconds since the epoch."""
    return _EPOCH + _MICROSECOND * number


def is_storable_id(name: str) -> bool:
    """Whether SQLite can compare a text: no lone surrogate and no NUL."""
    return _UNSTORABLE.search(name) is None


_ROW_COLUMNS = (
    "row, id, parent, position, type, text, properties, readers, class, author, created, modified, deletion, "
    "creator, editors, managers, version"
)

# `UNION`, so that the recursion ends in a damaged tree with a cycle.
SUBTREE_CTE = """
WITH RECURSIVE below (row) AS (
    SELECT :row UNION SELECT b.row FROM below CROSS JOIN blocks b ON b.parent = below.row
)
"""


class BlockRow(NamedTuple):
    """A full row of the `blocks` table, without access control."""

    row: int
    id: str
    parent: int | None
    position: float
    type: str
    text: str
    properties: str
    readers: str | None
    access: int
    author: str
    created: int
    modified: int
    deletion: int | None
    creator: str | None
    editors: str | None
    managers: str | None
    version: int


def load_rows_by_id(db: sqlite3.Connection, tenant: str, ids: Iterable[str]) -> dict[str, BlockRow]:
    """Rows of a tenant's blocks by id, hidden and deleted ones too."""
    query = f"SELECT {_ROW_COLUMNS} FROM blocks WHERE tenant = ? AND id IN (SELECT value FROM json_each(?))"  # noqa: S608 - fixed
    return {found.id: found for found in map(BlockRow._make, db.execute(query, (tenant, encode_ids(ids))))}


def load_row(db: sqlite3.Connection, row: int | None) -> BlockRow | None:
    """Row by row number; None for the parent of a root."""
    found = db.execute(f"SELECT {_ROW_COLUMNS} FROM blocks WHERE row = ?", (row,)).fetchone()  # noqa: S608 - fixed
    return None if found is None else BlockRow._make(found)


def walk_up(db: sqlite3.Connection, row: int | None) -> Iterator[int]:
    """Row numbers of a block and its ancestors; the caller must bound the walk, a damaged tree may have a cycle."""
    while row is not None:
        yield row
        found = db.execute("SELECT parent FROM blocks WHERE row = ?", (row,)).fetchone()
        row = None if found is None else found[0]


class BlockAccessClasses:
    """Access classes: blocks of a tenant with the same readers share one."""

    def __init__(self, db: sqlite3.Connection, scope: Scope) -> None:
        self._db = db
        self._tenant = check_storable("the tenant", scope.tenant)
        check_storable("the user", scope.user)
        self._principals = frozenset(scope.principals)
        self._numbers: dict[str, int] = {}
        self._readable: dict[int, bool] = {}

    def get_or_create(self, readers: Sequence[str]) -> int:
        """Number of the access class with these readers, created if new."""
        acl = encode_readers(readers)
        if acl not in self._numbers:
            self._numbers[acl] = self._find(acl) or self._create(acl, readers)
        return self._numbers[acl]

    def may_read(self, access: int) -> bool:
        """Whether the scope may read blocks of an access class."""
        if access not in self._readable:
            names = {row[0] for row in self._db.execute("SELECT principal FROM readers WHERE class = ?", (access,))}
            self._readable[access] = not self._principals.isdisjoint(names)
        return self._readable[access]

    def get_readers(self, access: int) -> frozenset[str]:
        """Principals of an access class."""
        rows = self._db.execute("SELECT principal FROM readers WHERE class = ?", (access,))
        return frozenset(str(row[0]) for row in rows)

    def _find(self, acl: str) -> int | None:
        query = "SELECT class FROM classes WHERE tenant = ? AND acl = ?"
        found = self._db.execute(query, (self._tenant, acl)).fetchone()
        return None if found is None else found[0]

    def _create(self, acl: str, readers: Sequence[str]) -> int:
        query = "INSERT INTO classes (tenant, acl) VALUES (?, ?) RETURNING class"
        access: int = self._db.execute(query, (self._tenant, acl)).fetchone()[0]
        everyone = [(access, name, self._tenant) for name in sorted(set(readers))]
        self._db.executemany("INSERT INTO readers VALUES (?, ?, ?)", everyone)
        return access


def encode_readers(readers: Sequence[str]) -> str:
    """Readers as stored: a sorted JSON list without duplicates."""
    return json.dumps(sorted(set(readers)), ensure_ascii=False)


def mark_outdated(db: sqlite3.Connection, condition: str, given: Mapping[str, str | int | float | None]) -> None:
    """Queue the live blocks that meet a condition for re-indexing."""
    db.execute(
        "INSERT INTO pending (tenant, id, class) "  # noqa: S608 - fixed pieces
        f"SELECT tenant, id, class FROM blocks WHERE deletion IS NULL AND {condition}",
        given,
    )


def mark_subtree_outdated(db: sqlite3.Connection, row: int) -> None:
    """Queue a block and all its descendants for re-indexing."""
    db.execute(
        f"{SUBTREE_CTE} INSERT INTO pending (tenant, id, class) SELECT b.tenant, b.id, b.class "  # noqa: S608 - fixed pieces
        "FROM below CROSS JOIN blocks b ON b.row = below.row WHERE b.deletion IS NULL",
        {"row": row},
    )
