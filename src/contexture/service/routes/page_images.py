"""`GET /v1/pages/{doc_id}/{page}/image` and `/thumb`: what a page looks like."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.errors import UnknownPage
from contexture.service.depends import Caller, Engine, permit

_JPEG = "image/jpeg"
_KEPT = {"Cache-Control": "private, max-age=3600", "X-Content-Type-Options": "nosniff"}


def router() -> APIRouter:
    """The routes of pictures."""
    routes = APIRouter(prefix="/v1/pages", tags=["pages"])
    routes.get("/{doc_id}/{page}/image", response_class=Response)(image)
    routes.get("/{doc_id}/{page}/thumb", response_class=Response)(thumb)
    return routes


async def image(doc_id: str, page: int, engine: Engine, caller: Caller) -> Response:
    """The page as a JPEG; one that is not there and one the caller may not see are answered alike."""
    return await _picture(doc_id, page, engine, caller, small=False)


async def thumb(doc_id: str, page: int, engine: Engine, caller: Caller) -> Response:
    """The page as a small JPEG; one that is not there and one the caller may not see are answered alike."""
    return await _picture(doc_id, page, engine, caller, small=True)


async def _picture(doc_id: str, page: int, engine: Engine, caller: Caller, *, small: bool) -> Response:
    await permit(engine, caller, "pages.read", {"doc_id": doc_id, "page": page})
    found = await engine.pages.picture(caller, doc_id, page, thumb=small)
    if found is None:
        raise UnknownPage(f"there is no picture of page {page} of document {doc_id!r}")
    return Response(found, media_type=_JPEG, headers=_KEPT)
