"""Everything a build depended on, after redaction, so that anyone can rebuild it offline."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from contexture.errors import InvalidRequest, ReplayMismatch
from contexture.ledger import Degradation, Entry, Ledger
from contexture.types import Candidate, Message, Scope

FORMAT = 1

T = TypeVar("T")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """What a build was asked for, by whom, when and under which settings; a capsule once it is shut."""

    kind: str
    scope: Scope
    now: datetime
    request: dict[str, Any]
    settings: dict[str, Any]

    def shut(
        self,
        candidates: Sequence[Candidate],
        ledger: Ledger,
        messages: tuple[Message, ...],
        *,
        said: Container[str] = (),
    ) -> Capsule:
        """The sealed capsule of what came out; `said` are the ids of entries whose texts are in the request itself."""
        redacted = {candidate.id for candidate in candidates}
        return sealed(
            Capsule(
                kind=self.kind,
                tenant=self.scope.tenant,
                user=self.scope.user,
                groups=self.scope.groups,
                now=self.now,
                request=self.request,
                settings=self.settings,
                candidates=tuple(candidates),
                lost=tuple(entry for entry in ledger.entries if entry.id not in redacted and entry.id not in said),
                degradations=ledger.degradations,
                messages=messages,
                digest=digest(messages),
            )
        )


def held(part: object, kind: type[T], what: str) -> T:
    """A part of a capsule as the value it was made of; `what` is named when it is not that."""
    try:
        return msgspec.convert(part, kind)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule does not hold {what}: {failure}") from failure


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
