"""Everything a build depended on, after redaction, so that anyone can rebuild it offline."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from contexture.errors import InvalidRequest, ReplayMismatch
from contexture.ledger import Degradation, Entry
from contexture.types import Candidate, Message

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Capsule:
    """A build in a box: request, clock, settings, redacted candidates, and what came out.

    `lost` are the entries of candidates that could not be redacted: their texts are not here.
    `digest` is of the messages; `seal` is of everything else and the digest, and names the build.
    """

    kind: str
    tenant: str
    user: str
    groups: tuple[str, ...]
    now: datetime
    request: dict[str, Any]
    settings: dict[str, Any]
    candidates: tuple[Candidate, ...]
    lost: tuple[Entry, ...]
    degradations: tuple[Degradation, ...]
    messages: tuple[Message, ...]
    digest: str
    format: int = FORMAT
    seal: str = ""


def digest(messages: tuple[Message, ...]) -> str:
    """SHA-256 of the messages as canonical JSON."""
    return hashlib.sha256(msgspec.json.encode(messages, order="deterministic")).hexdigest()


def sealed(capsule: Capsule) -> Capsule:
    """The capsule with its seal: a checksum against accidents, not a signature."""
    bare = replace(capsule, seal="")
    return replace(bare, seal=hashlib.sha256(msgspec.json.encode(bare, order="deterministic")).hexdigest())


def pack_capsule(capsule: Capsule) -> bytes:
    """The capsule as JSON."""
    return msgspec.json.encode(capsule, order="deterministic")


def unpack_capsule(data: bytes) -> Capsule:
    """What `pack_capsule` packed; anything else, and one that was changed since, is a clear error."""
    try:
        capsule = msgspec.json.decode(data, type=Capsule)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise InvalidRequest(f"this is not a capsule: {failure}") from failure
    if capsule.format != FORMAT:
        raise InvalidRequest(f"this capsule has format {capsule.format}; this version reads format {FORMAT}")
    if sealed(capsule).seal != capsule.seal:
        raise ReplayMismatch("this capsule was changed after it was written")
    return capsule
