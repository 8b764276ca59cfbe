"""The rows of databases that a query selects, which a search for the best few blocks would not all find."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from contexture.builders.workspace.desk import COLLECTION, Desk
from contexture.builders.workspace.selection import Selection, selection_of
from contexture.errors import UnknownCollection
from contexture.retrieval.search import Found, HybridSearch
from contexture.text.terms import terms
from contexture.types import And, Equals, Filter
from contexture.workspace import Block, BlockType

DATED = 0.4
"""How much of a row's relevance is how well its dates suit."""

ELSEWHERE = 0.5
"""What is left of it when the query names a database by a word of its title, and the row is in another."""

_POOL = 6  # rows looked at for each one wanted


async def selected_rows(desk: Desk, search: HybridSearch, where: Filter | None) -> list[tuple[Block, float]]:
    """The rows that suit best, with their relevance; none when the query selects nothing."""
    limit = desk.config.collectors.semantic.row_limit
    asked = selection_of(desk.question, _today(desk))
    if asked is None or limit < 1:
        return []
    found = await _found(desk, search, asked, where, _POOL * limit)
    dated = {row.id: (row, DATED * asked.suits(row)) for row in await desk.store.get(desk.scope, list(found))}
    worth = _in_named(desk.question, found)
    rows = [(row, worth[id_] * min(1.0, (1 - DATED) * found[id_].score + gain)) for id_, (row, gain) in dated.items()]
    return sorted(rows, key=lambda each: (-each[1], each[0].id))[:limit]


async def _found(
    desk: Desk, search: HybridSearch, asked: Selection, where: Filter | None, pool: int
) -> Mapping[str, Found]:
    rows = Equals("type", str(BlockType.DB_ROW))
    try:
        found = await search.search(
            desk.scope,
            COLLECTION,
            f"{desk.question}\n{asked.spelled}".strip(),
            where=rows if where is None else And((rows, where)),
            pool=pool,
            trace=desk.trace,
        )
    except UnknownCollection:  # the tenant has not written a block yet
        return {}
    best: dict[str, Found] = {}
    for each in found:
        best.setdefault(each.hit.record.id, each)
    return best


def _in_named(question: str, found: Mapping[str, Found]) -> dict[str, float]:
    """By row, what its database leaves of its relevance: all, unless the query names another one."""
    asked = set(terms(question))
    named = {id_: bool(asked & set(terms(each.hit.record.title))) for id_, each in found.items()}
    return {id_: 1.0 if is_named or not any(named.values()) else ELSEWHERE for id_, is_named in named.items()}


def _today(desk: Desk) -> date:
    return desk.now.astimezone(desk.request.zone).date()
