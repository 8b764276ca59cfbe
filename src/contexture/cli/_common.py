"""What every command shares: common options, opening settings and engine from them, and reading of input.

Invalid input raises `InvalidRequest`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar, cast

import typer

from contexture.cli._output import report_errors
from contexture.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.types import Json


T = TypeVar("T")

HomeOption = Annotated[Path | None, typer.Option("--home", metavar="DIR", help="Folder of the embedded store.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Act for this tenant.")]
UserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Act as this user.")]
GroupsOption = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="Act as a member of this group; repeatable.")
]
CollectionOption = Annotated[str | None, typer.Option("--collection", metavar="NAME", help="Collection to use.")]
SOURCES_LANG_HELP = "Language of the sources and of messages: ru, en or auto; also of the answer without --answer-lang."
AnswerLangOption = Annotated[
    str | None, typer.Option("--answer-lang", metavar="LANG", help="Language of the answer: ru, en or auto.")
]
WhereOption = Annotated[
    str | None, typer.Option("--where", metavar="JSON", help='Filter, such as {"equals": ["lang", "ru"]}.')
]

_COMMON_OPTIONS = {"home": (HomeOption, None), "as_json": (JsonOption, False)}
_IDENTITY_OPTIONS = {"tenant": (TenantOption, None), "user": (UserOption, None), "group": (GroupsOption, None)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Common:
    """The options that every command shares."""

    as_json: bool
    home: Path | None = None
    tenant: str | None = None
    user: str | None = None
    group: list[str] | None = None

    def settings(
        self, *, collection: str | None = None, model: str | None = None, max_tokens: int | None = None
    ) -> Settings:
        """Return the settings, overridden by the options of the command line."""
        given: dict[str, Any] = {
            "home": self.home,
            "tenant": self.tenant,
            "user": self.user,
            "groups": tuple(self.group) if self.group else None,
            "collection": collection,
            "model": model,
            "max_tokens": max_tokens,
        }
        return read_settings({name: value for name, value in given.items() if value is not None})

    def as_options(self) -> str:
        """Return the options that select the same user and store again."""
        named = [("--home", self.home), ("--tenant", self.tenant), ("--user", self.user)]
        groups = [("--group", name) for name in self.group or ()]
        return " ".join(f"{option} {quote(str(value))}" for option, value in (*named, *groups) if value)


def read_settings(given: dict[str, Any]) -> Settings:
    """Read settings from the environment and from `given`, which takes precedence; an invalid value is named."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from contexture.config import Settings

    try:
        return Settings(**given)
    except ValidationError as failure:
        first = failure.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        variable = name if name.isupper() else f"CONTEXTURE_{name.upper()}"  # upper case: an alias
        source = f"--{name.replace('_', '-')}" if name in given else variable
        raise InvalidRequest(f"{source} is {first['input']!r}: {first['msg']}") from failure
    except SettingsError as failure:
        raise InvalidRequest(f"{failure}; lists are written as JSON, such as '[\"sales\"]'") from failure


def require_store(settings: Settings) -> Settings:
    """Return the same settings; raises `NotFound` if there is no store to read."""
    elsewhere = settings.database or settings.in_plugin
    if not elsewhere and not (settings.home / "truth.sqlite").is_file():
        raise NotFound(f"there is no store in {str(settings.home)!r}; load something first: contexture ingest PATH")
    return settings


def run_with_engine(
    settings: Settings,
    work: Callable[[Contexture], Awaitable[T]],
    *,
    action: str = "",
    resource: Mapping[str, Json] | None = None,
) -> T:
    """Run `work` with an open engine and return its result; the engine is closed afterwards.

    With `action`, the policy is asked first, as the routes of the service do; raises `NotPermitted` if it denies it.
    """
    from contexture.answer.permissions import require_permission
    from contexture.cli._output import log_to_stderr
    from contexture.engine import open_store

    log_to_stderr()

    async def run() -> T:
        async with open_store(settings, embed_later=False) as engine:
            if action:
                await require_permission(engine.policy, engine.scope, action, resource or {})
            return await work(engine)

    return asyncio.run(run())


def register_command(
    app: typer.Typer, name: str, *, with_identity: bool = False
) -> Callable[[Callable[..., None]], None]:
    """Register a command that also takes the common options, and whose errors are reported.

    The function gets the options as its first argument; `with_identity` adds those for tenant, user and groups.
    """
    extra = {**(_IDENTITY_OPTIONS if with_identity else {}), **_COMMON_OPTIONS}

    def register(function: Callable[..., None]) -> None:
        def run(ctx: typer.Context, **given: Any) -> None:
            shared = {option: given.pop(option) for option in extra}
            shared["home"] = shared["home"] or ctx.obj
            common = Common(**shared)
            with report_errors(as_json=common.as_json):
                function(common, **given)

        run.__doc__ = function.__doc__
        run.__signature__ = _merge_signature(function, extra)  # pyright: ignore[reportFunctionMemberAccess] - typer reads it
        app.command(name)(run)

    return register


def _merge_signature(function: Callable[..., None], extra: dict[str, tuple[Any, Any]]) -> inspect.Signature:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    shared = [inspect.Parameter(name, keyword, default=value, annotation=kind) for name, (kind, value) in extra.items()]
    return inspect.Signature([context, *(each.replace(kind=keyword) for each in own), *shared])


STDIN = Path("-")


def parse_json(text: str, source: str) -> Any:
    """Parse a JSON value; raises `InvalidRequest` naming `source`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise InvalidRequest(f"{source} is not JSON: {failure}") from failure


def read_json_object() -> dict[str, Any]:
    """Return the JSON object on standard input."""
    found = parse_json(decode_text(read_bytes(STDIN), "standard input"), "standard input")
    if not isinstance(found, dict):
        raise InvalidRequest("the request on standard input must be a JSON object")
    return cast("dict[str, Any]", found)


def parse_now(text: str | None) -> datetime | None:
    """Parse the ISO time of `--now`; one without a zone is UTC."""
    from contexture.ingestion.records import parse_time

    return None if text is None else parse_time(text)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, or of standard input for `-`."""
    if path == STDIN:
        return _read_stdin()
    try:
        return path.read_bytes()
    except OSError as failure:
        raise InvalidRequest(f"cannot read {str(path)!r}: {failure.strerror}") from failure


def _read_stdin() -> bytes:
    stream = cast("TextIO | None", sys.stdin)  # None if a shell has closed it
    if stream is None or stream.isatty():
        raise InvalidRequest("standard input is empty; pipe something in, or give it on the command line")
    return stream.buffer.read()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file."""
    try:
        path.write_bytes(data)
    except OSError as failure:
        raise InvalidRequest(f"cannot write {str(path)!r}: {failure.strerror}") from failure


def decode_text(data: bytes, source: str) -> str:
    """Decode bytes as text; raises `InvalidRequest` naming `source`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise InvalidRequest(f"{source} is not UTF-8: byte {failure.start}") from failure


def require_folder(path: Path) -> Path:
    """Return the same path; raises `InvalidRequest` unless it is a folder."""
    if not path.is_dir():
        raise InvalidRequest(f"{str(path)!r} is not a folder")
    return path


def parse_numbers(text: str, option: str) -> list[int]:
    """Parse positive integers separated by commas."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InvalidRequest(f"{option} is {text!r}; give whole numbers such as 500,1000")
    return found
