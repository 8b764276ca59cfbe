"""Whether a stored article is a copy of a better one."""

from __future__ import annotations

from itertools import islice

from contexture.news.copies import APART, copies, stored_print
from contexture.news.records import ARTICLES, aware, moved
from contexture.news.stories import quality
from contexture.ports import Index
from contexture.text.terms import terms
from contexture.types import And, Equals, Filter, Query, Range, Record, Scope

_TERMS = 12  # of the beginning: copies share it
_LOOKED_AT = 16


async def outdone(index: Index, scope: Scope, record: Record) -> bool:
    """Whether a better copy of an article is stored that the scope may read."""
    own = stored_print(record.payload)
    asked = tuple(islice(dict.fromkeys(terms(record.text)), _TERMS))
    if not own.runs or not asked:
        return False
    query = Query(collection=ARTICLES.name, terms=asked, where=_about(record), k=_LOOKED_AT)
    others = [hit.record for hit in await index.search(scope, query) if hit.record.id != record.id]
    rank = quality(record, own)
    known = ((other, stored_print(other.payload)) for other in others)
    return any(quality(other, found) < rank and copies(own, found) for other, found in known)


def _about(record: Record) -> Filter:
    same_language = Equals("lang", record.lang)
    if record.time is None:
        return same_language
    time = aware(record.time)
    return And((same_language, Range(field="time", gte=moved(time, -APART), lte=moved(time, APART))))
