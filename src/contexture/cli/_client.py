"""HTTP client of a running service, which commands use if one holds the store, and writers that send it batches."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Collection as Some
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

import msgspec

from contexture import errors
from contexture.config import Settings
from contexture.errors import ContextError, ContractError, InvalidRequest, NotFound, SourceTimeout, SourceUnavailable
from contexture.ingestion.articles import ArticleIntake, SourcedArticle
from contexture.ingestion.articles import article_to_row as article_row
from contexture.ingestion.files import SourcedRecord
from contexture.ingestion.loader import OPTIMIZE_THRESHOLD, LoadReport, Progress, RecordIntake, write_records
from contexture.ingestion.records import record_to_row
from contexture.service.wire.ingest import block_object
from contexture.types import FieldType
from contexture.workspace import Activity, Block, ImportAccess, PutResult

if TYPE_CHECKING:
    import httpx

    from contexture.builders.replay import Explanation
    from contexture.config import Settings
    from contexture.ledger import Degradation, Ledger

_TIMEOUT_SECONDS = 300.0  # seconds: ingestion embeds what it is given
_CONNECT_SECONDS = 5.0
_COMMAND_ERRORS: Mapping[str, type[errors.CommandError]] = {
    "VALIDATION_FAILED": errors.CommandRefused,
    "NO_DATA": errors.NothingFound,
    "UNAVAILABLE": errors.CommandUnavailable,
    "INTERNAL": errors.CommandFailed,
}
_ERRORS_BY_CODE: Mapping[str, type[ContextError]] = {
    "VALIDATION_FAILED": InvalidRequest,
    "NO_DATA": errors.NotFound,
    "FORBIDDEN": errors.NotPermitted,
    "UNAUTHORIZED": errors.Unauthorized,
    "LIMITED": errors.TooManyRequests,
    "UNAVAILABLE": SourceUnavailable,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteService:
    """HTTP client of a running service: its address and the headers presented to it."""

    url: str
    headers: Mapping[str, str]

    def request(self, method: str, path: str, body: object = None, *, now: datetime | None = None) -> dict[str, Any]:
        """Return the JSON object of the response; errors of the service are raised as the same exceptions here."""
        with self._open_response(method, path, body, now) as response:
            response.read()
            return _parse_object(response.content)

    @contextmanager
    def stream_events(self, path: str, body: object) -> Generator[Generator[tuple[str, Any]]]:
        """Yield the named events of a stream as they arrive; an `error` event is raised."""
        with self._open_response("POST", path, body, None) as response:
            yield _parse_events(response)

    @contextmanager
    def _open_response(self, method: str, path: str, body: object, now: datetime | None) -> Generator[httpx.Response]:
        import httpx

        headers = {**self.headers, **({"X-Contexture-Now": now.isoformat()} if now else {})}
        content = None if body is None else _encode_body(body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        # Ignore proxies of the environment: a proxy cannot reach this machine's loopback address.
        timeout = httpx.Timeout(_TIMEOUT_SECONDS, connect=_CONNECT_SECONDS)
        try:
            with (
                httpx.Client(base_url=self.url, timeout=timeout, trust_env=False) as client,
                client.stream(method, path, content=content, headers=headers) as response,
            ):
                if response.is_error:
                    raise parse_error(response.read())
                yield response
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"the service at {self.url} did not answer in time") from failure
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as failure:
            raise InvalidRequest(f"{self.url!r} is not the address of a service: {failure}") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the service at {self.url} cannot be reached: {failure}") from failure


def find_service(settings: Settings) -> RemoteService | None:
    """Return a client of the service at `url`, or else of the one that holds the store, or else None."""
    if settings.url:
        return RemoteService(url=settings.url.rstrip("/"), headers=_auth_headers(settings))
    from contexture.announcement import read_announcement

    found = read_announcement(settings.home)
    if found is None or not _is_listening(found.url):
        return None
    return RemoteService(
        url=found.url, headers={"Authorization": f"Bearer {found.token}", **identity_headers(settings)}
    )


def request_service(settings: Settings, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Return the response of a running service; raises `SourceUnavailable` if there is none."""
    service = find_service(settings)
    if service is None:
        raise SourceUnavailable(
            f"no service is running for the store in {str(settings.home)!r}; start one: contexture serve"
        )
    return service.request(method, path, body)


def parse_error(body: bytes) -> ContextError:
    """Return the exception for an error response; `SourceUnavailable` if the body is not in our error format."""
    try:
        whole = msgspec.json.decode(body)
        error = whole["error"]
        code, message, tech = str(error["code"]), str(error["user_message"]), str(error["tech_message"])
        meta: dict[str, str] = {name: str(said) for name, said in whole.get("meta", {}).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return SourceUnavailable("the answer is not from a Contexture service; check CONTEXTURE_URL")
    if code in _COMMAND_ERRORS and meta.get("correlation_id", "").startswith("ctx-error-"):
        return _COMMAND_ERRORS[code](
            message, tech=tech, version=meta.get("version", ""), correlation_id=meta["correlation_id"]
        )
    closer = getattr(errors, tech.partition(":")[0], None)
    if isinstance(closer, type) and issubclass(closer, ContextError) and closer.__init__ is Exception.__init__:
        return closer(message)
    return _ERRORS_BY_CODE.get(code, ContractError)(message)


def _auth_headers(settings: Settings) -> dict[str, str]:
    """Return the request headers; with an API key, only an identity that was set explicitly is sent.

    So a wrong identity is refused, and none is made up from defaults.
    """
    if not settings.api_key:
        return identity_headers(settings)
    if not (settings.api_key.isascii() and settings.api_key.isprintable()):
        raise InvalidRequest("CONTEXTURE_API_KEY contains characters that are not valid in a key")
    said = {"tenant": "X-Contexture-Tenant", "user": "X-Contexture-User", "groups": "X-Contexture-Groups"}
    own = identity_headers(settings)
    return {
        "Authorization": f"Bearer {settings.api_key}",
        **{header: own[header] for name, header in said.items() if name in settings.model_fields_set},
    }


def identity_headers(settings: Settings) -> dict[str, str]:
    """Return the headers with the tenant, user and groups of the settings."""
    try:
        return {
            "X-Contexture-Tenant": quote(settings.tenant),
            "X-Contexture-User": quote(settings.user),
            "X-Contexture-Groups": ",".join(quote(name, safe="") for name in settings.groups),
        }
    except UnicodeEncodeError as failure:
        raise InvalidRequest("the tenant, the user or a group is not valid Unicode") from failure


def _encode_body(body: object) -> bytes:
    """Encode as ASCII JSON: input may contain lone surrogates, which UTF-8 cannot encode."""
    return json.dumps(msgspec.to_builtins(body, enc_hook=str), separators=(",", ":")).encode()


def _is_listening(url: str) -> bool:
    """Whether a server is listening: the process id of a dead service may belong to another process now."""
    where = urlsplit(url)
    try:
        with socket.create_connection((where.hostname or "", where.port or 80), timeout=1.0):
            return True
    except OSError:
        return False


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        found: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise SourceUnavailable("the answer is not JSON; check CONTEXTURE_URL") from failure
    if not isinstance(found, dict):
        raise SourceUnavailable("the answer is not a JSON object; check CONTEXTURE_URL")
    return cast("dict[str, Any]", found)


def _parse_events(response: httpx.Response) -> Generator[tuple[str, Any]]:
    name, data = "", b""
    for line in _iter_lines(response):
        if line.startswith(b"event:"):
            name = line[6:].strip().decode()
        elif line.startswith(b"data:"):
            data += line[5:].strip()
        elif not line and data:
            if name == "error":
                raise parse_error(data)
            yield name, msgspec.json.decode(data)
            name, data = "", b""


def _iter_lines(response: httpx.Response) -> Generator[bytes]:
    """Yield lines of bytes; a separator such as U+2028 inside a text does not end a line."""
    rest = b""
    for chunk in response.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.rstrip(b"\r") for line in whole)


def to_wire_json(answer: object) -> dict[str, Any]:
    """Convert a result computed in this process to the JSON object that a service would have sent."""
    import msgspec

    from contexture.service.envelope import encode_json

    return msgspec.json.decode(encode_json(answer), type=dict[str, Any])


def parse_degradations(answer: dict[str, Any]) -> tuple[Degradation, ...]:
    """Return the degradations in a response."""
    import msgspec

    from contexture.ledger import Degradation

    return msgspec.convert(answer["degradations"], tuple[Degradation, ...])


def parse_ledger(answer: dict[str, Any]) -> Ledger:
    """Return the ledger in a response."""
    import msgspec

    from contexture.ledger import Ledger, LedgerEntry

    entries = msgspec.convert(answer["ledger"], tuple[LedgerEntry, ...])
    return Ledger(entries=entries, degradations=parse_degradations(answer))


def parse_explanation(answer: dict[str, Any]) -> Explanation:
    """Return the explanation in a response."""
    import msgspec

    from contexture.builders.replay import Explanation
    from contexture.ledger import LedgerEntry

    entry = msgspec.convert(answer["candidate"], LedgerEntry)
    return Explanation(entry=entry, more_tokens=answer["more_tokens"], score_needed=answer["score_needed"])


def send_records(
    service: RemoteService,
    paths: Sequence[Path],
    *,
    settings: Settings,
    acl: tuple[str, ...],
    fields: Mapping[str, FieldType],
    again: bool,
    progress: Progress | None,
    skip: Some[str] = (),
) -> LoadReport:
    """Do the same as `load_records` through a running service."""
    common = {"collection": settings.collection, "fields": fields, "again": again, "importing": True}
    service.request("POST", "/v1/ingest/documents", {**common, "records": []})  # fails at once, not file by file
    writer = RecordSender(service, common)
    asyncio.run(write_records(writer, paths, acl=acl, progress=progress, skip=skip))
    if writer.report.added >= OPTIMIZE_THRESHOLD:
        service.request("POST", "/v1/ingest/documents", {**common, "records": [], "optimize": True})
    return writer.report


class RecordSender(RecordIntake):
    """Sends batches of records; problems from the service are reported with the record's file and line."""

    def __init__(self, service: RemoteService, common: Mapping[str, Any]) -> None:
        super().__init__()
        self._service = service
        self._common = common

    async def write(self, batch: Sequence[SourcedRecord]) -> None:
        """Send one batch; one that cannot be sent is reported, and loading continues."""
        rows = [record_to_row(each.record) for each in batch]
        try:
            found = self._service.request("POST", "/v1/ingest/documents", {**self._common, "records": rows})
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
            return
        self.report.added += found["added"]
        self.report.unchanged += found["unchanged"]
        for kept, said in ((self.report.failed, found["failed"]), (self.report.warnings, found["warnings"])):
            kept.extend(batch[int(each["line"]) - 1].problem(str(each["message"])) for each in said)


class ArticleSender(ArticleIntake):
    """Sends batches of articles, dated here; problems from the service are reported with the file and line."""

    def __init__(self, service: RemoteService) -> None:
        super().__init__()
        self._service = service

    async def write(self, batch: Sequence[SourcedArticle]) -> None:
        """Send one batch; one that cannot be sent is reported, and loading continues."""
        try:
            found = self._service.request(
                "POST", "/v1/ingest/articles", {"articles": [article_row(each.article) for each in batch]}
            )
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
            return
        self.report.added += found["added"]
        self.report.collapsed += found["collapsed"]
        self.report.unchanged += found["unchanged"]
        for said in found["failed"]:
            self.add_problem(batch[int(said["line"]) - 1].problem(str(said["message"])))


class BlockSender:
    """Writes blocks through a running service, with the identity of its client."""

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    async def put(self, blocks: Sequence[Block], access: ImportAccess) -> PutResult:
        """Send a batch; all of it is written or none, and no stored block can be read by more people than before."""
        body = {
            "blocks": [block_object(block) for block in blocks],
            "importing": {"unchanged": sorted(access.unchanged)},
        }
        return msgspec.convert(self._service.request("POST", "/v1/ingest/blocks", body), PutResult)

    async def delete(self, ids: Sequence[str]) -> int:
        """Remove blocks and their descendants."""
        return int(self._service.request("DELETE", "/v1/ingest/blocks", {"ids": list(ids)})["deleted"])

    async def find_existing(self, names: Sequence[str]) -> set[str]:
        """Return the ids that the service has a block for; it cannot look up pages by name."""
        return {name for name in names if self._has_block(name)}

    async def record(self, activity: Sequence[Activity]) -> None:
        """Do nothing: views and edits of other users cannot be recorded over HTTP."""

    def _has_block(self, name: str) -> bool:
        try:
            self._service.request("GET", f"/v1/blocks/{quote(name, safe='')}")
        except NotFound:
            return False
        return True
