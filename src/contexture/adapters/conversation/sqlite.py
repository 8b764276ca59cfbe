"""Sessions and replies in SQL tables, and in SQLite files."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

from contexture import conversation
from contexture.adapters.sqlite import SqliteTables, Tables, check_storable, decode_json, encode_json
from contexture.types import Scope

SESSION_MIGRATIONS = (
    """
    CREATE TABLE sessions (
        row INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL,
        last INTEGER NOT NULL DEFAULT 0, touched INTEGER NOT NULL DEFAULT 0, UNIQUE (tenant, user, id)
    );
    CREATE INDEX sessions_touched ON sessions (tenant, user, touched);
    CREATE TABLE events (
        session INTEGER NOT NULL REFERENCES sessions, position INTEGER NOT NULL, id TEXT NOT NULL,
        time TEXT NOT NULL, message TEXT NOT NULL, metadata TEXT NOT NULL,
        PRIMARY KEY (session, position), UNIQUE (session, id)
    ) WITHOUT ROWID;
    """,
    # Which memories were in the prompt of an answer, so that erasing one finds the answers that may repeat it.
    """
    CREATE TABLE recalled (
        tenant TEXT NOT NULL, record TEXT NOT NULL, session INTEGER NOT NULL, id TEXT NOT NULL,
        PRIMARY KEY (tenant, record, session, id)
    ) WITHOUT ROWID;
    CREATE INDEX recalled_event ON recalled (session, id);
    INSERT OR IGNORE INTO recalled
        SELECT s.tenant, json_extract(c.value, '$.memory_id'), e.session, e.id
        FROM events e JOIN sessions s ON s.row = e.session, json_each(e.metadata, '$.citations') c
        WHERE json_extract(c.value, '$.memory_id') IS NOT NULL;
    """,
)

_MAX_LIMIT = 1 << 31  # SQLite accepts no limit beyond 64 bits
_MAX_PARAMETERS = 500  # of one statement


class _EventRow(NamedTuple):
    id: str
    time: str
    message: str
    metadata: str
    recalled: tuple[str, ...] = ()


class StoredSessions:
    """Events by tenant, user and session, in SQL tables; they are appended, and never changed until they are erased.

    Positions of a session start at 1 and are never used again. When `append` returns, the events are durable.
    """

    def __init__(self, tables: Tables) -> None:
        self._database = tables

    async def append(self, scope: Scope, session_id: str, events: Sequence[conversation.SessionEvent]) -> int:
        """Append the events in one transaction, without those whose id is known; returns the last position."""
        rows = [_event_row(event) for event in events]
        key = _session_key(scope, session_id)
        return await self._database.write(lambda db: _insert_events(db, key, rows), grows=True)

    async def list_events(
        self, scope: Scope, session_id: str, *, limit: int = 20
    ) -> Sequence[conversation.SessionEvent]:
        """Newest `limit` events, oldest first."""
        if limit <= 0:
            return ()
        key = _session_key(scope, session_id)
        return await self._database.read(lambda db: _select_newest(db, key, min(limit, _MAX_LIMIT)))

    async def sessions(self, scope: Scope, *, limit: int = 50) -> Sequence[str]:
        """Ids of the scope's sessions, last written first."""
        query = "SELECT id FROM sessions WHERE tenant = ? AND user = ? ORDER BY touched DESC LIMIT ?"
        given = (*_owner_key(scope), min(max(0, limit), _MAX_LIMIT))
        return await self._database.read(lambda db: [str(row[0]) for row in db.execute(query, given)])

    async def citing(self, scope: Scope, record_ids: Sequence[str]) -> Sequence[conversation.OwnedEvent]:
        """Events of every user of the tenant whose prompts held one of these memories."""
        if not record_ids or not self._database.exists:
            return ()
        return await self._database.read(lambda db: _select_citing(db, scope.tenant, record_ids))

    async def remove_citations(self, scope: Scope, record_ids: Sequence[str], *, own: bool = False) -> None:
        """Remove the ids of these memories from the metadata of all events of the tenant; with `own`, of the user's."""
        if record_ids and self._database.exists:
            user = scope.user if own else None
            await self._database.write(lambda db: _remove_citations(db, scope.tenant, user, frozenset(record_ids)))
            await self._database.scrub()

    async def erase(self, scope: Scope, session_id: str, event_ids: Sequence[str] | None = None) -> Sequence[str]:
        """Remove these events of the scope's session, or the whole session; returns the ids of the removed events."""
        if not self._database.exists:
            return ()
        key = _session_key(scope, session_id)
        gone = await self._database.write(lambda db: _erase_events(db, key, event_ids))
        await self._database.scrub()
        return gone

    def close(self) -> None:
        """Release the tables."""
        self._database.close()


class SqliteSessions(StoredSessions):
    """Sessions in one SQLite file; a damaged file raises `SourceUnavailable` with its path."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteTables(path, SESSION_MIGRATIONS))


def _owner_key(scope: Scope) -> tuple[str, str]:
    return check_storable("the tenant", scope.tenant), check_storable("the user", scope.user)


def _session_key(scope: Scope, session_id: str) -> tuple[str, str, str]:
    return (*_owner_key(scope), check_storable("the session", session_id))


def _event_row(event: conversation.SessionEvent) -> _EventRow:
    name = f"event {event.id!r}"
    return _EventRow(
        check_storable("the event", event.id),
        event.time.isoformat(),
        encode_json(event.message, f"the message of {name}"),
        encode_json(dict(event.metadata), f"the metadata of {name}"),
        _recalled_ids(event),
    )


def _recalled_ids(event: conversation.SessionEvent) -> tuple[str, ...]:
    found: object = event.metadata.get(conversation.RECALLED_KEY)
    ids = cast("Sequence[object]", found) if isinstance(found, list | tuple) else ()
    return tuple(dict.fromkeys(check_storable("the memory", name) for name in ids if isinstance(name, str)))


def _insert_events(db: sqlite3.Connection, key: tuple[str, str, str], rows: Sequence[_EventRow]) -> int:
    found = db.execute("SELECT row, last FROM sessions WHERE tenant = ? AND user = ? AND id = ?", key).fetchone()
    last = found[1] if found else 0
    known = _known_event_ids(db, found[0], rows) if found else set[str]()
    fresh = {row.id: row for row in reversed(rows) if row.id not in known}  # the first of two with one id is kept
    new = [fresh[row.id] for row in rows if row.id in fresh and fresh[row.id] is row]
    if not new:
        return last
    session = _touch_session(db, key)
    db.executemany(
        "INSERT INTO events (session, position, id, time, message, metadata) VALUES (?, ?, ?, ?, ?, ?)",
        [(session, position, *row[:4]) for position, row in enumerate(new, start=last + 1)],
    )
    db.executemany(
        "INSERT INTO recalled (tenant, record, session, id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(key[0], record, session, row.id) for row in new for record in row.recalled],
    )
    db.execute("UPDATE sessions SET last = ? WHERE row = ?", (last + len(new), session))
    return last + len(new)


def _known_event_ids(db: sqlite3.Connection, session: int, rows: Sequence[_EventRow]) -> set[str]:
    query = "SELECT 1 FROM events WHERE session = ? AND id = ?"
    return {row.id for row in rows if db.execute(query, (session, row.id)).fetchone()}


def _touch_session(db: sqlite3.Connection, key: tuple[str, str, str]) -> int:
    """Row of a session, created if missing, and marked as last written."""
    row: int = db.execute(
        "INSERT INTO sessions (tenant, user, id, touched) "
        "VALUES (:tenant, :user, :id, "
        "(SELECT coalesce(max(touched), 0) + 1 FROM sessions WHERE tenant = :tenant AND user = :user)) "
        "ON CONFLICT (tenant, user, id) DO UPDATE SET touched = excluded.touched RETURNING row",
        dict(zip(("tenant", "user", "id"), key, strict=True)),
    ).fetchone()[0]
    return row


def _select_newest(db: sqlite3.Connection, key: tuple[str, str, str], limit: int) -> list[conversation.SessionEvent]:
    rows = db.execute(
        "SELECT e.id, e.time, e.message, e.metadata, e.position FROM events e JOIN sessions s ON s.row = e.session "
        "WHERE s.tenant = ? AND s.user = ? AND s.id = ? ORDER BY e.position DESC LIMIT ?",
        (*key, limit),
    ).fetchall()
    return [_event_from_row(_EventRow(*row[:4]), row[4]) for row in reversed(rows)]


def _event_from_row(row: _EventRow, position: int) -> conversation.SessionEvent:
    return conversation.SessionEvent(
        id=row.id,
        message=decode_json(row.message),
        time=datetime.fromisoformat(row.time),
        position=position,
        metadata=decode_json(row.metadata),
    )


def _select_citing(db: sqlite3.Connection, tenant: str, record_ids: Sequence[str]) -> list[conversation.OwnedEvent]:
    found: dict[tuple[int, int], conversation.OwnedEvent] = {}
    for some in _chunks(record_ids):
        rows = db.execute(
            "SELECT s.user, s.id, e.id, e.time, e.message, e.metadata, e.position, e.session FROM recalled r "  # noqa: S608 - fixed
            "JOIN events e ON e.session = r.session AND e.id = r.id JOIN sessions s ON s.row = e.session "
            f"WHERE r.tenant = ? AND r.record IN ({_placeholders(some)})",
            (tenant, *some),
        )
        for user, session_id, *event, position, session in rows:
            found[session, position] = conversation.OwnedEvent(
                user=user, session_id=session_id, event=_event_from_row(_EventRow(*event), position)
            )
    return list(found.values())


def _remove_citations(db: sqlite3.Connection, tenant: str, user: str | None, gone: frozenset[str]) -> None:
    for some in _chunks(sorted(gone)):
        where, given = f"tenant = ? AND record IN ({_placeholders(some)})", [tenant, *some]
        if user is not None:
            where += ' AND session IN (SELECT row FROM sessions WHERE tenant = ? AND "user" = ?)'
            given += [tenant, user]
        rows = db.execute(
            "SELECT DISTINCT e.session, e.id, e.metadata FROM events e JOIN "  # noqa: S608 - fixed
            f"(SELECT session, id FROM recalled WHERE {where}) r ON e.session = r.session AND e.id = r.id",
            given,
        ).fetchall()
        for session, name, metadata in rows:
            held: dict[str, Any] = decode_json(metadata)
            kept = {
                **held,
                conversation.RECALLED_KEY: [
                    each for each in held.get(conversation.RECALLED_KEY, ()) if each not in gone
                ],
                **({"citations": _other_citations(held["citations"], gone)} if "citations" in held else {}),
            }
            packed = encode_json(kept, f"the metadata of event {name!r}")
            db.execute("UPDATE events SET metadata = ? WHERE session = ? AND id = ?", (packed, session, name))
        db.execute(f"DELETE FROM recalled WHERE {where}", given)  # noqa: S608 - fixed


def _other_citations(citations: Sequence[Mapping[str, Any]], gone: frozenset[str]) -> list[Mapping[str, Any]]:
    return [each for each in citations if each.get("memory_id") not in gone]


def _erase_events(db: sqlite3.Connection, key: tuple[str, str, str], event_ids: Sequence[str] | None) -> list[str]:
    found = db.execute("SELECT row FROM sessions WHERE tenant = ? AND user = ? AND id = ?", key).fetchone()
    if found is None:
        return []
    session = found[0]
    wanted = None if event_ids is None else set(event_ids)
    rows = db.execute("SELECT id FROM events WHERE session = ? ORDER BY position", (session,)).fetchall()
    gone = [str(row[0]) for row in rows if wanted is None or row[0] in wanted]
    given = [(session, name) for name in gone]
    db.executemany("DELETE FROM recalled WHERE session = ? AND id = ?", given)
    db.executemany("DELETE FROM events WHERE session = ? AND id = ?", given)
    if len(gone) == len(rows):
        db.execute("DELETE FROM sessions WHERE row = ?", (session,))
    return gone


def _chunks(items: Iterable[str]) -> Iterator[list[str]]:
    every = list(items)
    for at in range(0, len(every), _MAX_PARAMETERS):
        yield every[at : at + _MAX_PARAMETERS]


def _placeholders(items: Sequence[object]) -> str:
    return ",".join("?" * len(items))


REPLY_MIGRATIONS = (
    """
    CREATE TABLE replies (
        tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL,
        state TEXT NOT NULL, time REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (tenant, user, id)
    ) WITHOUT ROWID;
    CREATE INDEX replies_time ON replies (time);
    """,
    # What a reply repeats: the memories in its prompt, and the events of its session.
    """
    CREATE TABLE cited (
        tenant TEXT NOT NULL, reference TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL,
        PRIMARY KEY (tenant, reference, user, id)
    ) WITHOUT ROWID;
    CREATE INDEX cited_reply ON cited (tenant, user, id);
    INSERT OR IGNORE INTO cited
        SELECT r.tenant, 'memories/' || json_extract(c.value, '$.memory_id'), r.user, r.id
        FROM replies r, json_each(CAST(r.body AS TEXT), '$.citations') c WHERE r.state = 'complete';
    INSERT OR IGNORE INTO cited
        SELECT r.tenant, 'event/' || json_extract(e.value, '$.id'), r.user, r.id
        FROM replies r, json_each(CAST(r.body AS TEXT), '$.events') e WHERE r.state = 'complete';
    """,
)

_PUT_REPLY = """
    INSERT INTO replies (tenant, user, id, session, state, time, body) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, user, id) DO UPDATE
    SET session = excluded.session, state = excluded.state, time = excluded.time, body = excluded.body
    WHERE replies.state <> 'complete'
"""
_PUT_CITED = "INSERT INTO cited (tenant, reference, user, id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_GET_REPLY = "SELECT id, session, state, time, body FROM replies WHERE tenant = ? AND user = ? AND id = ?"


class StoredReplies:
    """Replies by tenant, user and message id, in SQL tables; `put` deletes replies older than `days`."""

    def __init__(self, tables: Tables, *, days: float) -> None:
        self._database = tables
        self._retention = timedelta(days=days)

    async def get(self, scope: Scope, message_id: str) -> conversation.StoredReply | None:
        """Stored reply to a message; None if there is none."""
        key = _reply_key(scope, message_id)
        return await self._database.read(lambda db: _select_reply(db, key))

    async def put(self, scope: Scope, reply: conversation.StoredReply) -> conversation.StoredReply:
        """Store a reply, unless a complete one is stored already, and return the stored one."""
        key = _reply_key(scope, reply.message_id)
        session = check_storable("the session", reply.session_id)
        row = (*key, session, reply.state.value, reply.time.timestamp(), reply.body)
        oldest = (reply.time - self._retention).timestamp()
        cited = [check_storable("a reference", name) for name in reply.references]

        def work(db: sqlite3.Connection) -> conversation.StoredReply:
            _delete_outdated(db, oldest)
            db.execute(_PUT_REPLY, row)
            db.executemany(_PUT_CITED, [(key[0], name, key[1], key[2]) for name in cited])
            return _select_reply(db, key) or reply

        return await self._database.write(work, grows=True)

    async def erase(self, scope: Scope, target: conversation.ErasureTarget, *, preview: bool = False) -> Sequence[str]:
        """Remove the replies that repeat the target's texts; returns the ids of their messages."""
        if not self._database.exists:
            return ()
        owner = check_storable("the tenant", scope.tenant), check_storable("the user", scope.user)

        def work(db: sqlite3.Connection) -> list[str]:
            found = sorted(_select_repeating(db, owner, target))
            if not preview:
                rows = [(owner[0], *each) for each in found]
                db.executemany("DELETE FROM cited WHERE tenant = ? AND user = ? AND id = ?", rows)
                db.executemany("DELETE FROM replies WHERE tenant = ? AND user = ? AND id = ?", rows)
            return [name for _, name in found]

        if preview:
            return await self._database.read(work)
        gone = await self._database.write(work)
        await self._database.scrub()
        return gone

    def close(self) -> None:
        """Release the tables."""
        self._database.close()


class SqliteReplies(StoredReplies):
    """Replies in one SQLite file."""

    def __init__(self, path: Path, *, days: float) -> None:
        super().__init__(SqliteTables(path, REPLY_MIGRATIONS), days=days)


def _reply_key(scope: Scope, message_id: str) -> tuple[str, str, str]:
    return (
        check_storable("the tenant", scope.tenant),
        check_storable("the user", scope.user),
        check_storable("the message id", message_id),
    )


def _select_reply(db: sqlite3.Connection, key: Sequence[str]) -> conversation.StoredReply | None:
    row: Sequence[Any] | None = db.execute(_GET_REPLY, tuple(key)).fetchone()
    if row is None:
        return None
    name, session, state, time, body = row
    return conversation.StoredReply(
        message_id=name,
        session_id=session,
        state=conversation.ReplyState(state),
        time=datetime.fromtimestamp(time, UTC),
        body=bytes(body),
    )


def _delete_outdated(db: sqlite3.Connection, oldest: float) -> None:
    gone = db.execute("SELECT tenant, user, id FROM replies WHERE time < ?", (oldest,)).fetchall()
    db.executemany("DELETE FROM cited WHERE tenant = ? AND user = ? AND id = ?", gone)
    db.executemany("DELETE FROM replies WHERE tenant = ? AND user = ? AND id = ?", gone)


def _select_repeating(
    db: sqlite3.Connection, owner: tuple[str, str], target: conversation.ErasureTarget
) -> set[tuple[str, str]]:
    """User and message id of the replies that repeat the target's texts."""
    found: set[tuple[str, str]] = set()
    for some in _chunks(target.records):
        citing = _select_citing_replies(db, owner[0], some)
        found.update((user, name) for user, name, reference in citing if (user, reference) not in target.private)
    own = [*target.own_records, *(conversation.record_reference("event", name) for name in target.events)]
    for some in _chunks(own):
        citing = _select_citing_replies(db, owner[0], some)
        found.update((user, name) for user, name, _ in citing if user == owner[1])
    if not (target.sessions or target.whole_user or target.matches):
        return found
    mine = db.execute("SELECT id, session, body FROM replies WHERE tenant = ? AND user = ?", owner)
    for name, session, body in mine:
        whole = target.whole_user or session in target.sessions
        if whole or (target.matches is not None and target.matches(bytes(body).decode(errors="replace"))):
            found.add((owner[1], name))
    return found


def _select_citing_replies(db: sqlite3.Connection, tenant: str, references: Sequence[str]) -> set[tuple[str, str, str]]:
    """User, message id and reference of the replies that cite one of these."""
    rows = db.execute(
        f"SELECT user, id, reference FROM cited WHERE tenant = ? AND reference IN ({_placeholders(references)})",  # noqa: S608 - fixed
        (tenant, *references),
    )
    return {(str(user), str(name), str(reference)) for user, name, reference in rows}
