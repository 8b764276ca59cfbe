"""`GET /`: the playground page; and `/v1/demo/memory`, which only a demonstration serves."""

import hashlib
import html
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from contexture.errors import NotFound
from contexture.service._dependencies import EngineDep, json_response
from contexture.service.auth import PUBLIC_PREFIX
from contexture.service.wire import schemas

STATIC_FOLDER = Path(__file__).parent.parent / "static"
INDEX_FILE = "index.html"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_SECURITY_HEADERS = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_IMMUTABLE_CACHE = "public, max-age=31536000, immutable"


class Playground:
    """The page and its files, read once; their URLs contain a hash of all of them, so that browsers can cache them.

    `members` are the users that the page offers, with their groups; empty outside a demonstration.
    """

    def __init__(self, members: Mapping[str, tuple[str, ...]]) -> None:
        found = {
            path.relative_to(STATIC_FOLDER).as_posix(): path.read_bytes() for path in sorted(STATIC_FOLDER.rglob("*.*"))
        }
        contents = b"".join(name.encode() + b"\0" + content for name, content in found.items())
        self.mark = hashlib.sha256(contents).hexdigest()[:16]
        self._files = {name: content for name, content in found.items() if name != INDEX_FILE}
        self._page = self._fill_template(found[INDEX_FILE].decode(), members)
        self._etag = f'"{hashlib.sha256(self._page).hexdigest()[:16]}"'

    def router(self) -> APIRouter:
        """Return the routes of the page and its files."""
        routes = APIRouter(include_in_schema=False)
        routes.add_api_route("/", self.page, methods=["GET", "HEAD"])
        routes.add_api_route(f"{PUBLIC_PREFIX}{{mark}}/{{name:path}}", self.file, methods=["GET", "HEAD"])
        return routes

    async def page(self, request: Request) -> Response:
        """Return the page, or 304 while it has not changed."""
        headers = {**_SECURITY_HEADERS, "Cache-Control": "no-cache", "ETag": self._etag}
        if self._etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self._page, headers=headers, media_type=MEDIA_TYPES[".html"])

    async def file(self, mark: str, name: str) -> Response:
        """Return a file of the current page; older hashes are not found."""
        content = self._files.get(name) if mark == self.mark else None
        if content is None:
            raise NotFound(f"the playground has no file {name!r} at this address; load the page again")
        kind = MEDIA_TYPES[Path(name).suffix]
        return Response(content, headers={**_SECURITY_HEADERS, "Cache-Control": _IMMUTABLE_CACHE}, media_type=kind)

    def _fill_template(self, page: str, members: Mapping[str, tuple[str, ...]]) -> bytes:
        users = {user: list(groups) for user, groups in members.items()}
        values = {
            "assets": f"{PUBLIC_PREFIX}{self.mark}",
            "users": json.dumps(users),
            "version": version("contexture-ai"),
        }
        for name, value in values.items():
            page = page.replace(f"{{{{{name}}}}}", html.escape(value))
        return page.encode()


def playground_routes(members: Mapping[str, tuple[str, ...]]) -> APIRouter:
    """Return the routes of the playground."""
    return Playground(members).router()


class BreakMemoryBody(BaseModel):
    """Whether to simulate an outage of the memory service."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"broken": True}]})

    broken: bool


def demo_routes() -> APIRouter:
    """Return the routes of a demonstration."""
    routes = APIRouter(prefix="/v1/demo", tags=["demo"])
    routes.get("/memory", responses=schemas.json_answer(schemas.MemoryStateResponse))(read_memory_state)
    routes.post("/memory", responses=schemas.json_answer(schemas.MemoryStateResponse))(break_memory)
    return routes


async def read_memory_state(engine: EngineDep) -> Response:
    """Return whether an outage is simulated, and the state according to the health monitor."""
    return json_response(schemas.MemoryStateResponse(broken=engine.memory_broken, state=engine.health.state()))


async def break_memory(body: BreakMemoryBody, engine: EngineDep) -> Response:
    """Start or end a simulated outage, and return the new state; monitor and breaker react after their usual delays."""
    engine.break_memory(broken=body.broken)
    return await read_memory_state(engine)
