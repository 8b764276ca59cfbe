"""Policies written in Rego, compiled once and run in process."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import structlog

from contexture.adapters.native import import_native
from contexture.conversation import Decision, HealthState
from contexture.errors import InvalidRequest
from contexture.types import Json, Scope

_regopy: Any = import_native("regopy", feature="a policy in Rego", extra="rego")

_ALLOW, _REASON = "found := data.contexture.allow", "found := data.contexture.reason"
_PROBE: Mapping[str, Json] = {"tenant": "", "user": "", "groups": [], "action": "", "resource": {}}
_PACKAGE = re.compile(r"^\s*package\s+contexture\s*(#.*)?$", re.MULTILINE)
_BROKEN = "the policy cannot be used, so everything is denied until it is mended; the log of the service says why"
_SHOWN = 500  # characters of a compiler's message

Stamp: TypeAlias = "tuple[tuple[str, int, int, int], ...]"


class _Interpreter(Protocol):
    """What is used of `regopy.Interpreter`, which has no types."""

    log_level: object

    def add_module(self, name: str, source: str) -> None: ...
    def build(self, query: str) -> object: ...
    def set_input_term(self, term: str) -> None: ...
    def query_bundle(self, bundle: object) -> Any: ...


class RegoPolicy:
    """Asks `data.contexture.allow`, and `data.contexture.reason` when that is not true.

    The input is `{tenant, user, groups, action, resource}`. Every `*.rego` file of the folder is a module; when one
    changes, all are compiled again before the next decision. A folder that does not compile is refused at the start
    and denies everything later; the log says why. Decisions are made one at a time on a thread of their own.

    policy = RegoPolicy(Path("policies"), timeout=1.0)
    """

    def __init__(self, folder: Path, *, timeout: float = 1.0) -> None:
        self._folder = folder
        self._timeout = timeout
        self._told = ""
        self._stamp = _stamp(folder)
        self._rules: _Rules | InvalidRequest = _compiled(folder, self._stamp)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> Decision:
        """Allowed only when the policy says `true`, in time."""
        asked: dict[str, Json] = {
            "tenant": scope.tenant,
            "user": scope.user,
            "groups": list(scope.groups),
            "action": action,
            "resource": dict(resource),
        }
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._decide, asked)
        try:
            async with asyncio.timeout(self._timeout):
                return await work
        except TimeoutError:
            return _denied(f"the policy did not decide within {self._timeout:g} seconds")

    async def state(self) -> HealthState:
        """Down when the files as they are now allow nothing, degraded when that cannot be said in time."""
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._works)
        try:
            async with asyncio.timeout(self._timeout):
                return HealthState.NORMAL if await work else HealthState.DOWN
        except TimeoutError:
            return HealthState.DEGRADED

    def _works(self) -> bool:
        try:
            self._current()
        except InvalidRequest:
            return False
        return True

    def _decide(self, asked: Mapping[str, Json]) -> Decision:
        try:
            rules = self._current()
        except InvalidRequest as failure:
            self._tell(str(failure))
            return _denied(_BROKEN)
        self._told = ""
        try:
            allowed = rules.allowed(asked)
            if allowed is True:
                return Decision(allowed=True)
            said = rules.reason()
        except InvalidRequest as failure:
            return _denied(str(failure))
        if allowed is False:
            return _denied(said or f"the policy denies {asked['action']!r}")
        wrong = "does not say" if allowed is None else "says neither true nor false"
        return _denied(said or f"the policy {wrong} whether {asked['action']!r} is allowed")

    def _tell(self, failure: str) -> None:
        """Write down once what is wrong with the files: whoever keeps them reads the log, and callers need not know."""
        if failure != self._told:
            self._told = failure
            structlog.get_logger().error("the policy cannot be used, and everything is denied", reason=failure)

    def _current(self) -> _Rules:
        """The rules as the files say them now; what does not compile is not tried again until a file changes."""
        stamp = _stamp(self._folder)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._rules = _compiled(self._folder, stamp)
            except InvalidRequest as failure:
                self._rules = failure
        if isinstance(self._rules, InvalidRequest):
            raise self._rules
        return self._rules


class _Rules:
    """Compiled modules."""

    def __init__(self, interpreter: _Interpreter) -> None:
        self._interpreter = interpreter
        self._allow = interpreter.build(_ALLOW)
        self._reason = interpreter.build(_REASON)

    def allowed(self, asked: Mapping[str, Json]) -> object:
        """What `allow` is for this input; None when that is undefined."""
        try:
            # `set_input` ends a text at a NUL and reads backslashes in it; a term in JSON keeps every character. It
            # must not be ASCII: escaped letters would not equal the same letters in a policy.
            self._interpreter.set_input_term(json.dumps(asked, ensure_ascii=False))
        except (_regopy.RegoError, ValueError, TypeError) as failure:
            raise InvalidRequest(f"the policy cannot be asked: {_short(str(failure))}") from failure
        return self._found(self._allow)

    def reason(self) -> str:
        """Why, for the input of the last question; empty when the policy does not say."""
        found = self._found(self._reason)
        return found if isinstance(found, str) else ""

    def _found(self, bundle: object) -> object:
        try:
            output = self._interpreter.query_bundle(bundle)
        except (_regopy.RegoError, ValueError) as failure:
            raise InvalidRequest(f"the policy failed: {_short(str(failure))}") from failure
        if not output.ok():
            raise InvalidRequest(f"the policy failed: {_short(str(output))}")
        return output.results[0].bindings.get("found") if output.results else None


def _compiled(folder: Path, stamp: Stamp) -> _Rules:
    interpreter = cast("_Interpreter", _regopy.Interpreter())
    interpreter.log_level = _regopy.LogLevel.NONE  # it would print what we raise
    sources: list[str] = []
    for name, *_ in stamp:
        path = str(folder / name)
        try:
            sources.append((folder / name).read_text("utf-8"))
            interpreter.add_module(name, sources[-1])
        except (OSError, UnicodeDecodeError) as failure:
            raise InvalidRequest(f"the policy {path!r} cannot be read: {failure}") from failure
        except _regopy.RegoError as failure:
            raise InvalidRequest(f"the policy {path!r} does not compile: {_short(str(failure))}") from failure
    if not any(_PACKAGE.search(source) for source in sources):
        raise InvalidRequest(f"no policy in {str(folder)!r} is of `package contexture`, so nothing could be allowed")
    try:
        rules = _Rules(interpreter)
        rules.allowed(_PROBE)  # a call of a function that does not exist is found only when it is made
    except (_regopy.RegoError, InvalidRequest) as failure:
        raise InvalidRequest(f"the policies in {str(folder)!r} do not work: {_short(str(failure))}") from failure
    return rules


def _stamp(folder: Path) -> Stamp:
    """The files with their sizes, times and numbers; it changes when one of them does."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".rego")
        found = tuple((path.name, (info := path.stat()).st_size, info.st_mtime_ns, info.st_ino) for path in files)
    except OSError as failure:
        raise InvalidRequest(f"the policy folder {str(folder)!r} cannot be read: {failure.strerror}") from failure
    if not found:
        raise InvalidRequest(f"the policy folder {str(folder)!r} has no .rego files")
    return found


def _denied(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason)


def _short(text: str) -> str:
    """A compiler's message on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
