"""Which web pages of other origins may call the service: none, unless they are named."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from contexture.errors import InvalidRequest
from contexture.service.callers import GROUPS, TENANT, USER
from contexture.service.correlation import HEADER

_ASKED = ("Authorization", "Content-Type", HEADER, TENANT, USER, GROUPS)
_SHOWN = (HEADER, "Location", "Retry-After", "Server-Timing")


def install(app: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of these origins call; without any, browsers keep every other page away."""
    if not origins:
        return
    for origin in origins:
        _check(origin)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=list(_ASKED),
        expose_headers=list(_SHOWN),
    )


def _check(origin: str) -> None:
    """Refuse what is not one origin: any page of the web could call a service that answers without keys."""
    parts = urlsplit(origin)
    if parts.scheme not in {"http", "https"} or origin != f"{parts.scheme}://{parts.netloc}" or "*" in origin:
        raise InvalidRequest(f"CONTEXTURE_CORS_ORIGINS names {origin!r}, not an origin such as 'https://app.example'")
