"""`GET /`: the playground, a page that asks nothing of anyone but this service."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, Request, Response

from contexture.errors import NotFound
from contexture.service.callers import OPEN_FOLDER

FOLDER = Path(__file__).parent.parent / "static"
PAGE = "index.html"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_POLICY = (
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FOREVER = "public, max-age=31536000, immutable"


class Playground:
    """The page and its files, read once; their addresses hold a hash of them all, so that browsers may keep them.

    `members` are the users that the page offers, with their groups: none outside a demonstration.
    """

    def __init__(self, members: Mapping[str, tuple[str, ...]]) -> None:
        found = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*.*"))}
        told = b"".join(name.encode() + b"\0" + content for name, content in found.items())
        self.mark = hashlib.sha256(told).hexdigest()[:16]
        self._files = {name: content for name, content in found.items() if name != PAGE}
        self._page = self._filled(found[PAGE].decode(), members)
        self._etag = f'"{hashlib.sha256(self._page).hexdigest()[:16]}"'

    def router(self) -> APIRouter:
        """The routes of the page and its files."""
        routes = APIRouter(include_in_schema=False)
        routes.add_api_route("/", self.page, methods=["GET", "HEAD"])
        routes.add_api_route(f"{OPEN_FOLDER}{{mark}}/{{name:path}}", self.file, methods=["GET", "HEAD"])
        return routes

    async def page(self, request: Request) -> Response:
        """The page; asked again it is only confirmed while it has not changed."""
        headers = {**_HEADERS, "Cache-Control": "no-cache", "ETag": self._etag}
        if self._etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self._page, headers=headers, media_type=KINDS[".html"])

    async def file(self, mark: str, name: str) -> Response:
        """A file of the page as it is now; under an older hash there is none."""
        content = self._files.get(name) if mark == self.mark else None
        if content is None:
            raise NotFound(f"the playground has no file {name!r} at this address; load the page again")
        kind = KINDS[Path(name).suffix]
        return Response(content, headers={**_HEADERS, "Cache-Control": _FOREVER}, media_type=kind)

    def _filled(self, page: str, members: Mapping[str, tuple[str, ...]]) -> bytes:
        users = {user: list(groups) for user, groups in members.items()}
        values = {"assets": f"{OPEN_FOLDER}{self.mark}", "users": json.dumps(users), "version": version("contexture")}
        for name, value in values.items():
            page = page.replace(f"{{{{{name}}}}}", html.escape(value))
        return page.encode()


def router(members: Mapping[str, tuple[str, ...]]) -> APIRouter:
    """The routes of the playground."""
    return Playground(members).router()
