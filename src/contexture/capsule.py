"""Capsules: everything a build depended on, after redaction, so that it can be replayed offline."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from contexture.conversation import ErasureTarget, record_reference
from contexture.errors import InvalidRequest, ReplayMismatch
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.results import ANY_JSON, Digest, JsonResult, Timestamp, refer_to
from contexture.types import Candidate, ChatMessage, Message, Scope

CAPSULE_FORMAT = 1

CapsuleField: TypeAlias = Annotated[
    dict[str, Any],
    msgspec.Meta(
        description="Free JSON, for `replay` alone: its fields depend on the kind of build.",
        extra_json_schema={"additionalProperties": ANY_JSON},
    ),
]

CapsuleMessage: TypeAlias = Annotated[Message, msgspec.Meta(extra_json_schema=refer_to(ChatMessage))]
"""A `ChatMessage` that is read with all of its fields, because the seal covers them."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Capsule(JsonResult):
    """A replayable build: request, time, settings, redacted candidates and the resulting messages.

    `lost` are the ledger entries of candidates that could not be redacted; their texts are not stored. `digest` is the
    hash of the messages; `seal` is the hash of the whole capsule, and the build id is derived from it.
    """

    kind: str
    tenant: str
    user: str
    groups: tuple[str, ...]
    now: Timestamp
    request: CapsuleField
    settings: CapsuleField
    candidates: tuple[Candidate, ...]
    lost: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...]
    messages: tuple[CapsuleMessage, ...]
    digest: Digest
    format: int = CAPSULE_FORMAT
    seal: str = ""

    @property
    def build_id(self) -> str:
        """The id under which the build is stored."""
        return f"ctx-{self.seal[:12]}"

    def json_form(self) -> Capsule:
        """The capsule itself: its fields are those of its file."""
        return self

    @property
    def model(self) -> str:
        """The model whose tokenizer the build used; raises `InvalidRequest` when the capsule names none."""
        model = self.settings.get("model")
        if not isinstance(model, str):
            raise InvalidRequest("this capsule does not say for which model it was built")
        return model

    @property
    def encoding(self) -> str | None:
        """The encoding in which the build counted tokens; None for a capsule that does not name it."""
        encoding = self.settings.get("encoding")
        return encoding if isinstance(encoding, str) else None


def make_capsule(  # noqa: PLR0913 - everything that a build depended on, by name
    kind: str,
    *,
    scope: Scope,
    now: datetime,
    request: dict[str, Any],
    settings: dict[str, Any],
    candidates: Sequence[Candidate],
    ledger: Ledger,
    messages: tuple[Message, ...],
    in_request: Container[str] = (),
) -> Capsule:
    """The sealed capsule of a build from redacted candidates.

    `settings` must name the `model` whose tokenizer was used. `in_request` are the ids of ledger entries whose texts
    are stored in the request itself.
    """
    redacted = {candidate.id for candidate in candidates}
    return seal_capsule(
        Capsule(
            kind=kind,
            tenant=scope.tenant,
            user=scope.user,
            groups=scope.groups,
            now=now,
            request=request,
            settings=settings,
            candidates=tuple(candidates),
            lost=tuple(entry for entry in ledger.entries if entry.id not in redacted and entry.id not in in_request),
            degradations=ledger.degradations,
            messages=messages,
            digest=digest_messages(messages),
        )
    )


def convert_part(part: object, kind: type[T], what: str) -> T:
    """A part of a capsule converted to its type; raises `InvalidRequest` naming `what` when it does not fit."""
    try:
        return msgspec.convert(part, kind)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule does not hold {what}: {failure}") from failure


def digest_messages(messages: tuple[Message, ...]) -> str:
    """SHA-256 of the messages as canonical JSON."""
    return hashlib.sha256(msgspec.json.encode(messages, order="deterministic")).hexdigest()


def seal_capsule(capsule: Capsule) -> Capsule:
    """The capsule with its seal: a checksum against accidental changes, not a signature."""
    bare = replace(capsule, seal="")
    return replace(bare, seal=hashlib.sha256(msgspec.json.encode(bare, order="deterministic")).hexdigest())


def pack_capsule(capsule: Capsule) -> bytes:
    """The capsule as JSON, with keys in a deterministic order."""
    return msgspec.json.encode(capsule, order="deterministic")


def unpack_capsule(data: bytes) -> Capsule:
    """The inverse of `pack_capsule`.

    Raises `InvalidRequest` for data that is not a capsule of this format, and `ReplayMismatch` for one that was changed
    after it was sealed.
    """
    try:
        capsule = msgspec.json.decode(data, type=Capsule)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise InvalidRequest(f"this is not a capsule: {failure}") from failure
    if capsule.format != CAPSULE_FORMAT:
        raise InvalidRequest(f"this capsule has format {capsule.format}; this version reads format {CAPSULE_FORMAT}")
    if seal_capsule(capsule).seal != capsule.seal:
        raise ReplayMismatch("this capsule was changed after it was written")
    return capsule


class _CitedRecord(msgspec.Struct):
    collection: str
    record_id: str
    hash: str


class _CitingCandidate(msgspec.Struct):
    key: str
    citation: _CitedRecord | None = None


class _CopyingCapsule(msgspec.Struct):
    tenant: str
    user: str
    request: dict[str, Any]
    candidates: tuple[_CitingCandidate, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CapsuleReferences:
    """Whose build a capsule holds, the records whose texts it copies, and the session it was built in.

    `versions` names the records with the hashes of their texts.
    """

    tenant: str
    user: str
    records: frozenset[str]
    versions: frozenset[str]
    session_id: str

    def concerns(self, scope: Scope, target: ErasureTarget) -> bool:
        """Whether the build copies texts of the target; `matches` needs the capsule itself."""
        if self.tenant != scope.tenant:
            return False
        copied = {each for each in self.records & target.records if (self.user, each) not in target.private}
        if copied or not self.versions.isdisjoint(target.versions):
            return True
        return self.user == scope.user and (
            target.whole_user
            or self.session_id in target.sessions | target.touched_sessions
            or not self.records.isdisjoint(target.own_records)
        )


def list_references(data: bytes) -> CapsuleReferences | None:
    """What a packed capsule copies; None for data that is not a capsule."""
    try:
        found = msgspec.json.decode(data, type=_CopyingCapsule)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    session = found.request.get("session_id")
    return CapsuleReferences(
        tenant=found.tenant,
        user=found.user,
        records=frozenset(
            record_reference("", each.key)
            if each.citation is None
            else record_reference(each.citation.collection, each.citation.record_id)
            for each in found.candidates
        ),
        versions=frozenset(
            record_reference(each.citation.collection, each.citation.record_id, each.citation.hash)
            for each in found.candidates
            if each.citation is not None
        ),
        session_id=session if isinstance(session, str) else "",
    )
