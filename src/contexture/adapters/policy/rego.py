"""Policies written in Rego, compiled once and run in process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from contexture.conversation import Decision
from contexture.errors import InvalidRequest
from contexture.types import Json, Scope

try:
    import regopy as _regopy  # pyright: ignore[reportMissingTypeStubs] - it has none
except ImportError as missing:
    raise ImportError('policies need regopy: pip install "contexture[rego]"') from missing

_QUERY = "found := data.contexture"
_SHOWN = 500  # characters of a compiler's message

Stamp: TypeAlias = "tuple[tuple[str, int, int], ...]"


class _Interpreter(Protocol):
    """What is used of `regopy.Interpreter`, which has no types."""

    log_level: object

    def add_module(self, name: str, source: str) -> None: ...
    def build(self, query: str) -> object: ...
    def set_input(self, value: object) -> None: ...
    def query_bundle(self, bundle: object) -> Any: ...


class RegoPolicy:
    """Asks `data.contexture.allow`, and `data.contexture.reason` when that is not true.

    The input is `{tenant, user, groups, action, resource}`. Every `*.rego` file of the folder is a module; when one
    changes, all are compiled again before the next decision. A folder that does not compile is refused at the start
    and denies everything later. Decisions are made one at a time on a thread of their own.

    policy = RegoPolicy(Path("policies"), timeout=1.0)
    """

    def __init__(self, folder: Path, *, timeout: float = 1.0) -> None:
        self._folder = folder
        self._timeout = timeout
        self._stamp = _stamp(folder)
        self._rules = _compiled(folder, self._stamp)
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
            return await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            return _denied(f"the policy did not decide within {self._timeout:g} seconds")

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _decide(self, asked: dict[str, Json]) -> Decision:
        try:
            found = self._current().ask(asked)
        except InvalidRequest as failure:
            return _denied(str(failure))
        allowed, reason = found.get("allow"), found.get("reason")
        said = reason if isinstance(reason, str) else ""
        if isinstance(allowed, bool):
            return Decision(allowed=True, reason=said) if allowed else _denied(said or f"denied: {asked['action']}")
        wrong = "does not say" if allowed is None else "says neither true nor false"
        return _denied(f"the policy {wrong} whether {asked['action']!r} is allowed")

    def _current(self) -> _Rules:
        """The rules as the files say them now."""
        stamp = _stamp(self._folder)
        if stamp != self._stamp:
            self._rules = _compiled(self._folder, stamp)
            self._stamp = stamp
        return self._rules


class _Rules:
    """Compiled modules."""

    def __init__(self, interpreter: _Interpreter) -> None:
        self._interpreter = interpreter
        self._bundle = interpreter.build(_QUERY)

    def ask(self, asked: dict[str, Json]) -> dict[str, Any]:
        """What the package `contexture` holds for this input; nothing when that is undefined."""
        try:
            self._interpreter.set_input(asked)
            output = self._interpreter.query_bundle(self._bundle)
            if not output.ok():
                raise InvalidRequest(f"the policy failed: {_short(str(output))}")
            found: object = output.results[0].bindings.get("found") if output.results else None
        except (_regopy.RegoError, ValueError, TypeError) as failure:
            raise InvalidRequest(f"the policy failed: {_short(str(failure))}") from failure
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _compiled(folder: Path, stamp: Stamp) -> _Rules:
    interpreter = cast("_Interpreter", _regopy.Interpreter())
    interpreter.log_level = cast("Any", _regopy).LogLevel.NONE  # it would print what we raise
    for name, *_ in stamp:
        try:
            interpreter.add_module(name, (folder / name).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as failure:
            raise InvalidRequest(f"the policy {str(folder / name)!r} cannot be read: {failure}") from failure
        except _regopy.RegoError as failure:
            raise InvalidRequest(
                f"the policy {str(folder / name)!r} does not compile: {_short(str(failure))}"
            ) from failure
    try:
        return _Rules(interpreter)
    except _regopy.RegoError as failure:
        raise InvalidRequest(f"the policies in {str(folder)!r} do not compile: {_short(str(failure))}") from failure


def _stamp(folder: Path) -> Stamp:
    """The files with their sizes and times; it changes when one of them does."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".rego")
        found = tuple((path.name, (info := path.stat()).st_size, info.st_mtime_ns) for path in files)
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
