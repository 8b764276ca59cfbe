"""Everything a build depended on, after redaction, so that anyone can rebuild it offline."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from contexture.errors import InvalidRequest
from contexture.ledger import Degradation
from contexture.types import Candidate, Message

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Capsule:
    """A build in a box: request, clock, settings, redacted candidates, and what came out."""

    kind: str
    tenant: str
    user: str
    now: datetime
    request: dict[str, Any]
    settings: dict[str, Any]
    candidates: tuple[Candidate, ...]
    degradations: tuple[Degradation, ...]
    messages: tuple[Message, ...]
    digest: str
    format: int = FORMAT


def digest(messages: tuple[Message, ...]) -> str:
    """SHA-256 of the messages as canonical JSON."""
    return hashlib.sha256(msgspec.json.encode(messages, order="deterministic")).hexdigest()


def pack_capsule(capsule: Capsule) -> bytes:
    """The capsule as JSON."""
    return msgspec.json.encode(capsule, order="deterministic")


def unpack_capsule(data: bytes) -> Capsule:
    """What `pack_capsule` packed; anything else is a clear error."""
    try:
        capsule = msgspec.json.decode(data, type=Capsule)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise InvalidRequest(f"this is not a capsule: {failure}") from failure
    if capsule.format != FORMAT:
        raise InvalidRequest(f"this capsule has format {capsule.format}; this version reads format {FORMAT}")
    return capsule
