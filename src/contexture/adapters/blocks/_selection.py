"""Queries about work for one scope: blocks by their cells, dates and state, values by name, and the change feed.

Blocks the scope may not read are never counted.
"""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

import json
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from contexture import workspace
from contexture.adapters.blocks import schema
from contexture.types import Scope

_LIVE = f"b.tenant = :tenant AND b.deletion IS NULL AND {schema.readable_condition()}"
_DAY = 86_400_000_000
_SECOND = 1_000_000
_NO_DUE = 1 << 62
_MAX_GROUPS = 200

# A day without a time is stored as its last microsecond in UTC; it ends when it ends where the user is.
_DUE = f"(b.due - CASE WHEN b.due - (b.due / {_DAY}) * {_DAY} = {_DAY - 1} THEN :offset ELSE 0 END)"  # integer division


def select_blocks(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, query: workspace.BlockQuery, limit: int
) -> workspace.BlockSelection:
    """The first blocks that a query selects, with counts."""
    builder = _SelectionBuilder(scope, query)
    inside = builder.build()
    given = builder.params
    total: int = db.execute(f"SELECT count(*) FROM ({inside}) s", given).fetchone()[0]
    order = f"coalesce(b.due, {_NO_DUE}), b.modified DESC, b.id"
    order = f"b.modified DESC, {order}" if query.newest else order
    found = (
        db.execute(
            f"SELECT {schema.block_columns()} FROM blocks b WHERE b.row IN ({inside}) ORDER BY {order} LIMIT :limit",
            {**given, "limit": schema.clamp_limit(limit)},
        )
        if total and limit > 0
        else ()
    )
    return workspace.BlockSelection(
        blocks=tuple(rows.decode_blocks(db, found)),
        total=total,
        groups={name: dict(_count_groups(db, inside, given, name)) for name in query.group_by} if total else {},
    )


def _count_groups(db: sqlite3.Connection, inside: str, given: schema.SqlParams, name: str) -> Iterator[tuple[str, int]]:
    """Blocks by value of a column, the most frequent first; values that differ in case count as one."""
    if not schema.is_storable_id(name):
        return
    query = (
        f"SELECT min(g.shown), count(DISTINCT g.row) FROM cells g WHERE g.name = :group AND g.row IN ({inside}) "
        f"GROUP BY g.value ORDER BY 2 DESC, 1 LIMIT {_MAX_GROUPS}"
    )
    yield from db.execute(query, {**given, "group": name})


class _SelectionBuilder:
    """Builds the SQL of a query; the most selective condition on cells drives it."""

    def __init__(self, scope: Scope, query: workspace.BlockQuery) -> None:
        self._query = query
        self.params: schema.SqlParams = schema.scope_params(scope, offset=query.utc_offset * _SECOND)

    def build(self) -> str:
        """SQL for the distinct rows that are selected."""
        filters = self._cell_filters()
        conditions = [*self._column_conditions(), *(self._cell_condition(each) for each in filters)]
        if self._query.databases:
            self.params["databases"] = schema.encode_ids(self._query.databases)
            source = (
                "FROM blocks p CROSS JOIN blocks b ON b.parent = p.row "
                "WHERE p.tenant = :tenant AND p.id IN (SELECT value FROM json_each(:databases))"
            )
        else:
            driver = self._cell_condition(filters[0], "d")
            source = f"FROM cells d CROSS JOIN blocks b ON b.row = d.row WHERE d.tenant = :tenant AND {driver}"
            conditions.remove(self._cell_condition(filters[0]))
        return " AND ".join([f"SELECT DISTINCT b.row {source}", _LIVE, *conditions])

    def _cell_filters(self) -> list[workspace.CellFilter]:
        """The conditions on cells, the most selective kind first."""
        query = self._query
        filters = [*query.cells]
        if query.types:
            filters.append(workspace.CellFilter(names=(workspace.TYPE_CELL,), values=tuple(map(str, query.types))))
        if query.done is not None:
            filters.append(
                workspace.CellFilter(names=(workspace.TASK_CELL,), values=("done" if query.done else "open",))
            )
        if not filters and not query.databases:
            filters.append(workspace.CellFilter(names=(workspace.TASK_CELL,), values=("open", "done")))
        return sorted(
            filters,
            key=lambda each: (not each.values, workspace.TYPE_CELL in each.names or workspace.TASK_CELL in each.names),
        )

    def _cell_condition(self, cell: workspace.CellFilter, table: str = "") -> str:
        """A condition on the cells of block `b`, or on the cell `table`."""
        at = table or "x"
        parts = [] if table else ["x.row = b.row"]
        if cell.names:
            parts.append(f"{at}.name IN (SELECT value FROM json_each({self._bind_list(cell.names)}))")
        if cell.values:
            parts.append(f"{at}.value IN (SELECT value FROM json_each({self._bind_list(cell.values)}))")
        if cell.start:
            parts.append(f"{at}.value >= {self._bind(cell.start)}")
        if cell.end:
            parts.append(f"{at}.value < {self._bind(cell.end)}")
        condition = " AND ".join(parts) or "1 = 1"
        return condition if table else f"EXISTS (SELECT 1 FROM cells x WHERE {condition})"

    def _column_conditions(self) -> Iterator[str]:
        query = self._query
        bounds: Sequence[tuple[str, str, datetime | None]] = (
            (_DUE, ">=", query.due_from),
            (_DUE, "<", query.due_before),
            ("b.modified", ">=", query.modified_from),
            ("b.modified", "<", query.modified_before),
        )
        for column, sign, moment in bounds:
            if moment is not None:
                yield f"{column} {sign} {self._bind(schema.to_microseconds(moment))}"
        if query.due_from is not None or query.due_before is not None:
            yield "b.due IS NOT NULL"

    def _bind_list(self, texts: Sequence[str]) -> str:
        return self._bind(json.dumps([text for text in texts if schema.is_storable_id(text)], ensure_ascii=False))

    def _bind(self, value: str | int) -> str:
        """A parameter with this value; equal values share one, so that equal conditions are equal texts."""
        for name, known in self.params.items():
            if name.startswith("given_") and known == value and type(known) is type(value):
                return f":{name}"
        name = f"given_{len(self.params)}"
        self.params[name] = value
        return f":{name}"


_NEXT_VALUE = f"""
SELECT c.name, c.shown FROM cells c
WHERE c.tenant = :tenant AND c.value = :value AND (c.name, c.shown) > (:name, :shown)
AND EXISTS (SELECT 1 FROM blocks b WHERE b.row = c.row AND {_LIVE}) ORDER BY c.name, c.shown LIMIT 1
"""


def find_values(
    db: sqlite3.Connection, scope: Scope, values: Sequence[str], limit: int
) -> Sequence[workspace.CellValue]:
    """Columns with one of these values, and people named by it; the index is skipped through, not scanned."""
    found: dict[workspace.CellValue, None] = {}
    given = schema.scope_params(scope)
    for value in filter(schema.is_storable_id, dict.fromkeys(values)):
        name, shown = "", ""
        while len(found) < limit:
            row = db.execute(_NEXT_VALUE, {**given, "value": value, "name": name, "shown": shown}).fetchone()
            if row is None:
                break
            name, shown = row
            if name.startswith(workspace.PERSON_MARK):
                found[workspace.CellValue(name=name[len(workspace.PERSON_MARK) :], value=shown, is_person=True)] = None
            else:
                found[workspace.CellValue(name=name, value=value)] = None
                shown = "\U0010ffff"  # other spellings of the value are the same cell
    return list(found)


_EDITS = f"""
SELECT t.id, t.user, t.last FROM touches t CROSS JOIN blocks b ON b.row = t.row
WHERE t.tenant = :tenant AND t.deed = '{workspace.ActivityKind.EDIT}'
AND t.last >= :since AND t.last < :until AND {_LIVE} ORDER BY t.last DESC, t.id, t.user LIMIT :limit
"""
_EDITS_BY = f"""
SELECT t.id, t.user, t.last FROM touches t CROSS JOIN blocks b ON b.row = t.row
WHERE t.tenant = :tenant AND t.user IN (SELECT value FROM json_each(:users))
AND t.deed = '{workspace.ActivityKind.EDIT}' AND t.last >= :since AND t.last < :until
AND {_LIVE} ORDER BY t.last DESC, t.id, t.user LIMIT :limit
"""
_MODIFIED = f"""
SELECT b.id, '', b.modified FROM blocks b
WHERE b.modified >= :since AND b.modified < :until AND {_LIVE} ORDER BY b.modified DESC, b.id LIMIT :limit
"""
_COUNT_LIMIT = 10_000


def get_changes(
    db: sqlite3.Connection, scope: Scope, since: datetime, until: datetime, users: Sequence[str], limit: int
) -> workspace.ChangeFeed:
    """The latest change of each block; edits come from the record of edits, others from the time of modification."""
    given = schema.scope_params(
        scope,
        since=schema.to_microseconds(since),
        until=schema.to_microseconds(until),
        limit=_COUNT_LIMIT,
        users=schema.encode_ids(users),
    )
    found = list(db.execute(_EDITS_BY if users else _EDITS, given))
    if not users:
        found += db.execute(_MODIFIED, given)
    latest: dict[str, tuple[int, str]] = {}
    for id_, user, last in found:
        known = latest.get(id_)
        if known is None or (last, user) > known:
            latest[id_] = (last, user or (known[1] if known else ""))
    order = sorted(latest, key=lambda id_: (-latest[id_][0], id_))
    changes = tuple(
        workspace.Activity(
            block_id=id_,
            user=latest[id_][1],
            deed=workspace.ActivityKind.EDIT,
            time=schema.from_microseconds(latest[id_][0]),
        )
        for id_ in order[: schema.clamp_limit(limit)]
    )
    return workspace.ChangeFeed(changes=changes, total=len(latest))
