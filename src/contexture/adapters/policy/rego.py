"""Policies written in Rego, compiled once and evaluated in process."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import structlog

from contexture.adapters.installed_packages import import_native
from contexture.conversation import Decision, HealthState
from contexture.errors import InvalidRequest
from contexture.types import Json, Scope

_regopy: Any = import_native("regopy", feature="a policy in Rego", extra="rego")

_ALLOW_QUERY, _REASON_QUERY = "found := data.contexture.allow", "found := data.contexture.reason"
_PROBE_INPUT: Mapping[str, Json] = {"tenant": "", "user": "", "groups": [], "action": "", "resource": {}}
_PACKAGE = re.compile(r"^\s*package\s+contexture\s*(#.*)?$", re.MULTILINE)
_UNUSABLE_REASON = "the policy cannot be used, so everything is denied until it is fixed; see the service log"
_MAX_MESSAGE_CHARS = 500  # length limit for compiler messages

FolderStamp: TypeAlias = "tuple[tuple[str, int, int, int], ...]"


class _Interpreter(Protocol):
    """The methods used of `regopy.Interpreter`, which has no type hints."""

    log_level: object

    def add_module(self, name: str, source: str) -> None: ...
    def build(self, query: str) -> object: ...
    def set_input_term(self, term: str) -> None: ...
    def query_bundle(self, bundle: object) -> Any: ...


class RegoPolicy:
    """Policy that evaluates `data.contexture.allow`, and `data.contexture.reason` if that is not true.

    The input is `{tenant, user, groups, action, resource}`. Every `*.rego` file of the folder is a module; when one
    changes, all are compiled again before the next decision. The constructor raises `InvalidRequest` for a folder that
    does not compile; one that stops compiling later denies everything, and the log says why. Decisions are made one at
    a time in a dedicated thread.

    policy = RegoPolicy(Path("policies"), timeout=1.0)
    """

    def __init__(self, folder: Path, *, timeout: float = 1.0) -> None:
        self._folder = folder
        self._timeout = timeout
        self._logged = ""
        self._stamp = _stamp_folder(folder)
        self._rules: _CompiledRules | InvalidRequest = _compile_folder(folder, self._stamp)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> Decision:
        """Allow only if the policy evaluates to `true` within the timeout."""
        document: dict[str, Json] = {
            "tenant": scope.tenant,
            "user": scope.user,
            "groups": list(scope.groups),
            "action": action,
            "resource": dict(resource),
        }
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._decide, document)
        try:
            async with asyncio.timeout(self._timeout):
                return await work
        except TimeoutError:
            return _deny(f"the policy did not decide within {self._timeout:g} seconds")

    async def state(self) -> HealthState:
        """Down if the current files do not compile, degraded if that cannot be determined within the timeout."""
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._is_usable)
        try:
            async with asyncio.timeout(self._timeout):
                return HealthState.NORMAL if await work else HealthState.DOWN
        except TimeoutError:
            return HealthState.DEGRADED

    def _is_usable(self) -> bool:
        try:
            self._current_rules()
        except InvalidRequest:
            return False
        return True

    def _decide(self, document: Mapping[str, Json]) -> Decision:
        try:
            rules = self._current_rules()
        except InvalidRequest as failure:
            self._log_once(str(failure))
            return _deny(_UNUSABLE_REASON)
        self._logged = ""
        try:
            allowed = rules.evaluate_allow(document)
            if allowed is True:
                return Decision(allowed=True)
            said = rules.evaluate_reason()
        except InvalidRequest as failure:
            return _deny(str(failure))
        if allowed is False:
            return _deny(said or f"the policy denies {document['action']!r}")
        if allowed is None:
            return _deny(said or f"the policy does not say whether {document['action']!r} is allowed")
        return _deny(said or f"the policy's `allow` for {document['action']!r} is not a boolean")

    def _log_once(self, failure: str) -> None:
        """Log each failure of the files once; operators read the log, and callers get no details."""
        if failure != self._logged:
            self._logged = failure
            structlog.get_logger().error("the policy cannot be used; everything is denied", reason=failure)

    def _current_rules(self) -> _CompiledRules:
        """Compiled rules of the current files; files that do not compile are not retried until one changes."""
        stamp = _stamp_folder(self._folder)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._rules = _compile_folder(self._folder, stamp)
            except InvalidRequest as failure:
                self._rules = failure
        if isinstance(self._rules, InvalidRequest):
            raise InvalidRequest(str(self._rules))  # a new one: raised again, it would keep every caller's frames
        return self._rules


class _CompiledRules:
    """Compiled modules and queries."""

    def __init__(self, interpreter: _Interpreter) -> None:
        self._interpreter = interpreter
        self._allow = interpreter.build(_ALLOW_QUERY)
        self._reason = interpreter.build(_REASON_QUERY)

    def evaluate_allow(self, document: Mapping[str, Json]) -> object:
        """Value of `allow` for this input; None if it is undefined."""
        try:
            # `set_input` truncates strings at a NUL and interprets backslashes; a JSON term keeps every character.
            # It must not be ASCII-escaped: escaped letters would not equal the same letters in a policy.
            self._interpreter.set_input_term(json.dumps(document, ensure_ascii=False))
        except (_regopy.RegoError, ValueError, TypeError) as failure:
            raise InvalidRequest(f"the policy rejects its input: {_shorten(str(failure))}") from failure
        return self._query(self._allow)

    def evaluate_reason(self) -> str:
        """Value of `reason` for the last input; empty if it is not a string."""
        found = self._query(self._reason)
        return found if isinstance(found, str) else ""

    def _query(self, bundle: object) -> object:
        try:
            output = self._interpreter.query_bundle(bundle)
        except (_regopy.RegoError, ValueError) as failure:
            raise InvalidRequest(f"the policy failed: {_shorten(str(failure))}") from failure
        if not output.ok():
            raise InvalidRequest(f"the policy failed: {_shorten(str(output))}")
        return output.results[0].bindings.get("found") if output.results else None


def _compile_folder(folder: Path, stamp: FolderStamp) -> _CompiledRules:
    interpreter = cast("_Interpreter", _regopy.Interpreter())
    interpreter.log_level = _regopy.LogLevel.NONE  # it would print the errors that we raise
    sources: list[str] = []
    for name, *_ in stamp:
        path = str(folder / name)
        try:
            sources.append((folder / name).read_text("utf-8"))
            interpreter.add_module(name, sources[-1])
        except (OSError, UnicodeDecodeError) as failure:
            raise InvalidRequest(f"the policy {path!r} cannot be read: {failure}") from failure
        except _regopy.RegoError as failure:
            raise InvalidRequest(f"the policy {path!r} does not compile: {_shorten(str(failure))}") from failure
    if not any(_PACKAGE.search(source) for source in sources):
        raise InvalidRequest(f"no policy in {str(folder)!r} has `package contexture`, so everything would be denied")
    try:
        rules = _CompiledRules(interpreter)
        rules.evaluate_allow(_PROBE_INPUT)  # calls of undefined functions are only detected on evaluation
    except (_regopy.RegoError, InvalidRequest) as failure:
        raise InvalidRequest(f"the policies in {str(folder)!r} fail: {_shorten(str(failure))}") from failure
    return rules


def _stamp_folder(folder: Path) -> FolderStamp:
    """Names, sizes, modification times and inodes of the files; changes when one of them does."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".rego")
        found = tuple((path.name, (info := path.stat()).st_size, info.st_mtime_ns, info.st_ino) for path in files)
    except OSError as failure:
        raise InvalidRequest(f"the policy folder {str(folder)!r} cannot be read: {failure.strerror}") from failure
    if not found:
        raise InvalidRequest(f"the policy folder {str(folder)!r} has no .rego files")
    return found


def _deny(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason)


def _shorten(text: str) -> str:
    """Compiler message on one line, truncated."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE_CHARS else f"{line[:_MAX_MESSAGE_CHARS]}…"
