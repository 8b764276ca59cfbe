"""`GET /v1/pages/{doc_id}/{page}/regions`: where the characters of a page stand in its picture."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from contexture.documents import Region
from contexture.errors import UnknownPage
from contexture.service.depends import Caller, Engine, answer, permit

Offset = Annotated[int | None, Query(ge=0)]


def router() -> APIRouter:
    """The route of regions."""
    routes = APIRouter(prefix="/v1/pages", tags=["pages"])
    routes.get("/{doc_id}/{page}/regions")(regions)
    return routes


async def regions(
    doc_id: str, page: int, engine: Engine, caller: Caller, start: Offset = None, end: Offset = None
) -> Response:
    """The boxes of a page, or of its characters from `start` to `end`, as shares of its width and height.

    What the regions say is not told: it has not been redacted.
    """
    await permit(engine, caller, "pages.read", {"doc_id": doc_id, "page": page})
    (found,) = await engine.pages.pages(caller, [(doc_id, page)]) or (None,)
    if found is None:
        raise UnknownPage(f"there is no page {page} of document {doc_id!r}")
    shown = [_row(each) for each in found.regions if _touches(each, start, end)]
    return answer({"doc_id": doc_id, "page": page, "regions": shown})


def _touches(region: Region, start: int | None, end: int | None) -> bool:
    if start is None and end is None:
        return True
    return region.start < (region.end if end is None else end) and (start or 0) < region.end


def _row(region: Region) -> dict[str, Any]:
    return {"kind": region.kind, "box": region.box, "start": region.start, "end": region.end}
