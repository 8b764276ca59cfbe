"""What was computed about blocks, kept beside them."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from contexture.adapters.blocks.rows import asking, listed
from contexture.adapters.blocks.schema import readable
from contexture.types import Scope
from contexture.workspace import SUMMED_DEPTH, BlockFacts, BlockType, Stale

_FACTS = f"""
SELECT b.id, b.facts FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
WHERE b.tenant = :tenant AND b.deletion IS NULL AND b.facts IS NOT NULL AND {readable()}
"""
_KEEP = "UPDATE blocks SET facts = :facts WHERE tenant = :tenant AND id = :id"

_ABOVE = f"""
WITH RECURSIVE above (row, level) AS (
    SELECT value, 1 FROM json_each(:rows)
    UNION SELECT b.parent, above.level + 1 FROM above CROSS JOIN blocks b ON b.row = above.row
    WHERE above.level < {SUMMED_DEPTH} AND b.parent IS NOT NULL
)
"""
_PAGES = f"type = '{BlockType.PAGE}' AND row IN (SELECT row FROM above)"

_packed = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder(BlockFacts).decode


def facts(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockFacts]:
    """By id, what is kept of these."""
    found = ((id_, told_by(told)) for id_, told in db.execute(_FACTS, asking(scope, ids=listed(ids))))
    return {id_: known for id_, known in found if known is not None}


def told_by(kept: bytes | None) -> BlockFacts | None:
    """The facts of one row; what cannot be read is as good as nothing, for facts can be computed again."""
    try:
        return None if kept is None else _unpacked(kept)
    except msgspec.DecodeError:
        return None


def keep(db: sqlite3.Connection, done: Iterable[Stale]) -> None:
    """Keep what these bear, instead of what was kept before."""
    known = [
        {"facts": _packed(each.facts), "tenant": each.tenant, "id": each.id} for each in done if each.facts is not None
    ]
    db.executemany(_KEEP, known)


def forget_summaries(db: sqlite3.Connection, places: Iterable[int | None]) -> None:
    """Forget what is kept of the pages that may sum up children of these rows; they wait to be settled again."""
    given = {"rows": json.dumps(sorted({row for row in places if row is not None}))}
    waiting = f"SELECT tenant, id, class FROM blocks WHERE deletion IS NULL AND {_PAGES}"
    db.execute(f"{_ABOVE} INSERT INTO pending (tenant, id, class) {waiting}", given)
    db.execute(f"{_ABOVE} UPDATE blocks SET facts = NULL WHERE {_PAGES}", given)
