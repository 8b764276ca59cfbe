"""Policies evaluated by an Open Policy Agent over HTTP."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import httpx
import msgspec

from contexture.conversation import Decision, HealthState
from contexture.errors import InvalidRequest, SourceError, SourceTimeout, SourceUnavailable
from contexture.types import Json, Scope

_OK = 200
_MAX_ANSWER_BYTES = 2**16
_PROBE_INPUT: Mapping[str, Json] = {"tenant": "", "user": "", "groups": [], "action": "", "resource": {}}


class OpaPolicy:
    """Policy that queries OPA's data API at `url`: a package with `allow` and `reason`, or the rule `allow` itself.

    The input is `{tenant, user, groups, action, resource}`, as for policies in process. Only the answer `true` allows;
    an undefined answer, any other value, an error, a redirect, or no answer within `timeout` denies.

    policy = OpaPolicy("http://127.0.0.1:8181/v1/data/contexture", timeout=1.0)
    """

    def __init__(self, url: str, *, timeout: float = 1.0) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as failure:
            raise InvalidRequest(f"{url!r} is not a valid policy URL: {failure}") from failure
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise InvalidRequest(f"the policy URL must use http or https, not {url!r}")
        self._url = url
        self._timeout = timeout
        self._client = httpx.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False)

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> Decision:
        """Allow only if OPA answers `true` within the timeout."""
        document: dict[str, Json] = {
            "tenant": scope.tenant,
            "user": scope.user,
            "groups": list(scope.groups),
            "action": action,
            "resource": dict(resource),
        }
        try:
            found = await self._ask(document)
        except SourceError as failure:
            return Decision(allowed=False, reason=str(failure))
        return _parse_decision(found, action)

    async def state(self) -> HealthState:
        """Down if OPA does not give a valid answer."""
        try:
            await self._ask(_PROBE_INPUT)
        except SourceError:
            return HealthState.DOWN
        return HealthState.NORMAL

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, document: Mapping[str, Json]) -> object:
        """Result of the query; None if it is undefined. Raises `SourceError`."""
        try:
            body = msgspec.json.encode({"input": document})
        except UnicodeEncodeError as failure:
            raise SourceUnavailable("the request to the policy server is not valid Unicode") from failure
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._client.post(
                    self._url, content=body, headers={"Content-Type": "application/json", "Accept-Encoding": "identity"}
                )
        except (TimeoutError, httpx.TimeoutException) as failure:
            raise SourceTimeout(f"the policy did not decide within {self._timeout:g} seconds") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the policy server cannot be reached: {type(failure).__name__}") from failure
        if answer.status_code != _OK or len(answer.content) > _MAX_ANSWER_BYTES:
            raise SourceUnavailable(f"the policy server answered with status {answer.status_code}")
        return _parse_result(answer.content)


def _parse_result(content: bytes) -> object:
    try:
        found: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as failure:
        raise SourceUnavailable("the policy's answer is not JSON") from failure
    if not isinstance(found, dict):
        raise SourceUnavailable("the policy's answer is not an object")
    return cast("dict[str, Any]", found).get("result")


def _parse_decision(found: object, action: str) -> Decision:
    decided = cast("dict[str, Any]", found) if isinstance(found, dict) else {"allow": found}
    allow, reason = decided.get("allow"), decided.get("reason")
    if allow is True:
        return Decision(allowed=True)
    if isinstance(reason, str) and reason:
        return Decision(allowed=False, reason=reason)
    if allow is False:
        return Decision(allowed=False, reason=f"the policy denies {action!r}")
    if allow is None:
        return Decision(allowed=False, reason=f"the policy does not say whether {action!r} is allowed")
    return Decision(allowed=False, reason=f"the policy's `allow` for {action!r} is not a boolean")
