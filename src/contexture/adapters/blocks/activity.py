"""Who edited and viewed which block, counted per user, and when last."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from contexture.adapters.blocks.rows import asking, can_hold, listed, microseconds, moment, most
from contexture.adapters.blocks.schema import readable
from contexture.adapters.sessions.database import storable
from contexture.errors import NotFound
from contexture.types import Scope
from contexture.workspace import Activity, Deed, Touch

_LIVE = f"b.tenant = :tenant AND b.deletion IS NULL AND {readable()}"

_RECENT = f"""
SELECT t.id, t.last FROM touches t CROSS JOIN blocks b ON b.row = t.row
WHERE t.tenant = :tenant AND t.user = :user AND t.deed = :deed AND t.last >= :since AND {_LIVE}
ORDER BY t.last DESC, t.id LIMIT :limit
"""

_TOUCHES = f"""
SELECT b.id, b.author = :user, t.deed, t.count, t.last
FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
LEFT JOIN touches t ON t.tenant = :tenant AND t.user = :user AND t.row = b.row
WHERE {_LIVE}
"""

_NOTE = """
INSERT INTO touches (tenant, user, row, deed, id, count, last) VALUES (?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (tenant, user, row, deed) DO UPDATE SET count = touches.count + 1,
    last = CASE WHEN excluded.last > touches.last THEN excluded.last ELSE touches.last END
"""


def recent(db: sqlite3.Connection, scope: Scope, deed: Deed, since: datetime, limit: int) -> Sequence[Activity]:
    """The user's newest deeds, one per block."""
    given = asking(scope, user=scope.user, deed=str(deed), since=microseconds(since), limit=most(limit))
    found = db.execute(_RECENT, given)
    return [Activity(block_id=id_, user=scope.user, deed=deed, time=moment(last)) for id_, last in found]


def touches(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> Mapping[str, Touch]:
    """What the user has had to do with these blocks."""
    found: dict[str, Touch] = {}
    for id_, author, deed, count, last in db.execute(_TOUCHES, asking(scope, user=scope.user, ids=listed(ids))):
        if not author and deed is None:
            continue
        known = found.get(id_) or Touch(author=bool(author))
        found[id_] = known if deed is None else _with(known, deed, count, moment(last))
    return found


def _with(known: Touch, deed: str, count: int, last: datetime) -> Touch:
    return Touch(
        edits=count if deed == Deed.EDIT else known.edits,
        views=count if deed == Deed.VIEW else known.views,
        last=last if known.last is None else max(known.last, last),
        author=known.author,
    )


def note(db: sqlite3.Connection, scope: Scope, deeds: Iterable[Activity]) -> None:
    """Count deeds with blocks that the scope may read; another one is an unknown one."""
    for deed in deeds:
        query = f"SELECT b.row FROM blocks b WHERE b.id = :id AND {_LIVE}"
        found = db.execute(query, asking(scope, id=deed.block_id)).fetchone() if can_hold(deed.block_id) else None
        if found is None:
            raise NotFound(f"there is no block {deed.block_id!r}")
        count(db, scope.tenant, deed, found[0])


def count(db: sqlite3.Connection, tenant: str, deed: Activity, row: int) -> None:
    """Count one deed with the block of this row."""
    user = storable("the user", deed.user)
    db.execute(_NOTE, (tenant, user, row, str(deed.deed), deed.block_id, microseconds(deed.time)))
