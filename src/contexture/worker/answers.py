"""Where a worker's answers come from: the engine in this process, or the service that holds the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import structlog

from contexture.adapters.announcement import Announcement
from contexture.engine import Contexture
from contexture.errors import (
    ContextError,
    ContractError,
    InvalidRequest,
    NotFound,
    NotPermitted,
    Overloaded,
    SourceTimeout,
    SourceUnavailable,
    StoreUnwritable,
    TooManyRequests,
    Unauthorized,
)
from contexture.resilience.deadline import Deadline
from contexture.resilience.retry import Retries
from contexture.service.callers import GROUPS, TENANT, USER
from contexture.service.envelope import encoded
from contexture.service.wire.chat import result_object
from contexture.service.wire.handover import Inbound
from contexture.worker.work import LONGEST_PAUSE, Answer

_PATIENCE = httpx.Timeout(600.0, connect=5.0)  # seconds: the service has a shorter patience of its own
_KINDS: Mapping[str, type[ContextError]] = {
    "VALIDATION_FAILED": InvalidRequest,
    "NO_DATA": NotFound,
    "FORBIDDEN": NotPermitted,
    "LIMITED": TooManyRequests,
    "UNAVAILABLE": SourceUnavailable,
}
_CLOSER: Mapping[str, type[ContextError]] = {kind.__name__: kind for kind in (Overloaded, StoreUnwritable)}


def inside(engine: Contexture) -> Answer:
    """Answers by an engine in this process, each within the time that a request with a model may take."""
    seconds = engine.settings.answer_timeout_seconds

    async def answer(inbound: Inbound) -> bytes:
        work = engine.once.run(inbound.request(), scope=inbound.scope)
        return encoded(result_object(await Deadline(seconds).wait_for(work, "the engine")))

    return answer


@asynccontextmanager
async def through(found: Callable[[], Announcement | None], retries: Retries) -> AsyncGenerator[Answer]:
    """Answers by the service that `found` finds, asked for each message because a service may be started again.

    While there is none, messages wait: they are not to blame.
    """
    # The environment may name a proxy, which would not find this machine's loopback.
    async with httpx.AsyncClient(timeout=_PATIENCE, trust_env=False) as client:

        async def answer(inbound: Inbound) -> bytes:
            number = 0
            while True:
                service = found()
                answered = await _asked(client, service, inbound) if service else None
                if answered is not None:
                    return answered
                if not number:
                    structlog.get_logger().warning("no service answers yet; messages wait")
                await retries.sleep(min(LONGEST_PAUSE, retries.pause(min(number, 16))))
                number += 1

        yield answer


async def _asked(client: httpx.AsyncClient, service: Announcement, inbound: Inbound) -> bytes | None:
    """What the service answers; None when it is gone, or is another one by now."""
    headers = {
        "Authorization": f"Bearer {service.token}",
        "Content-Type": "application/json",
        TENANT: quote(inbound.tenant_id),
        USER: quote(inbound.user_id),
        GROUPS: ",".join(quote(name, safe="") for name in inbound.groups),
    }
    try:
        answer = await client.post(f"{service.url}/v1/chat", content=encoded(_body(inbound)), headers=headers)
    except httpx.ReadTimeout as failure:
        raise SourceTimeout(f"the service at {service.url} did not answer in time") from failure
    except httpx.HTTPError:
        return None
    if not answer.is_error:
        return answer.content
    failure = _error(answer.content)
    if isinstance(failure, Unauthorized):
        return None
    raise failure


def _body(inbound: Inbound) -> dict[str, Any]:
    request = inbound.request()
    return {
        "message": request.message,
        "session_id": request.session_id,
        "message_id": request.message_id,
        "persona_id": request.persona_id,
        "model": request.model,
        "system_prompt": request.system_prompt,
        "max_prompt_tokens": request.max_prompt_tokens,
        "max_tokens": request.max_tokens,
    }


def _error(body: bytes) -> ContextError:
    try:
        told = msgspec.json.decode(body)["error"]
        code, message = str(told["code"]), str(told["user_message"])
        kind = str(told.get("tech_message", "")).partition(":")[0]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return SourceUnavailable("the service gave an answer that cannot be read")
    if code == "UNAUTHORIZED":
        return Unauthorized(message)
    return (_CLOSER.get(kind) or _KINDS.get(code, ContractError))(message)
