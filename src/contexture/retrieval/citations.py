"""Citations, resolved back to the records they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from contexture.types import Citation, Collection, Record, Scope


class Stored(Protocol):
    """Reads records by collection, as every `Index` does."""

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant."""
        ...

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those of `ids` that exist and that the scope may see."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A citation that does not resolve, and why."""

    citation: Citation
    reason: str


async def verify(index: Stored, scope: Scope, citations: Sequence[Citation]) -> list[Problem]:
    """Every citation that does not lead to the text it was made from, as `scope` sees the store now.

    A record that is gone and one that the scope may not see are answered alike.
    """
    found = await cited_records(index, scope, citations)
    checked = (
        (citation, reason_of(citation, found.get((citation.collection, citation.record_id)))) for citation in citations
    )
    return [Problem(citation=citation, reason=reason) for citation, reason in checked if reason]


async def resolve(index: Stored, scope: Scope, citation: Citation) -> str | None:
    """The stored text that a citation names; None when it does not resolve."""
    found = await cited_records(index, scope, [citation])
    record = found.get((citation.collection, citation.record_id))
    return None if record is None or reason_of(citation, record) else record.text[citation.start : citation.end]


async def cited_records(index: Stored, scope: Scope, citations: Sequence[Citation]) -> dict[tuple[str, str], Record]:
    """The records that citations name, by collection and id, each collection read once."""
    known = {collection.name for collection in await index.collections(scope)}
    wanted: dict[str, dict[str, None]] = {}
    for citation in citations:
        if citation.collection in known:
            wanted.setdefault(citation.collection, {})[citation.record_id] = None
    return {
        (collection, record.id): record
        for collection, ids in wanted.items()
        for record in await index.get(scope, collection, list(ids))
    }


def reason_of(citation: Citation, record: Record | None) -> str:
    """Why a citation does not resolve to this record; empty when it does."""
    if record is None:
        return f"no record {citation.record_id!r} can be read in {citation.collection!r}"
    if record.hash != citation.hash:
        return f"record {citation.record_id!r} has changed since it was cited"
    if not 0 <= citation.start < citation.end <= len(record.text):
        return f"characters {citation.start} to {citation.end} are not in record {citation.record_id!r}"
    return ""
