"""What every command takes: where the store is, who asks, and how to answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from contexture.cli.output import reported
from contexture.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.engine import Contexture

T = TypeVar("T")

Home = Annotated[Path | None, typer.Option("--home", metavar="DIR", help="Folder of the embedded store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Act inside this tenant.")]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Act as this user.")]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="Act as a member of this group; repeatable.")
]
Collection = Annotated[str | None, typer.Option("--collection", metavar="NAME", help="Collection to use.")]
Where = Annotated[
    str | None, typer.Option("--where", metavar="JSON", help='Filter, such as {"equals": ["lang", "ru"]}.')
]

_EVERYWHERE = {"home": (Home, None), "as_json": (AsJson, False)}
_ACTING = {"tenant": (Tenant, None), "user": (User, None), "group": (Groups, None)}


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
        """The settings with what the command line says instead."""
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

    def retyped(self) -> str:
        """The options to type again to act as the same user on the same store."""
        named = [("--home", self.home), ("--tenant", self.tenant), ("--user", self.user)]
        groups = [("--group", name) for name in self.group or ()]
        return " ".join(f"{option} {quote(str(value))}" for option, value in (*named, *groups) if value)


def read_settings(given: dict[str, Any]) -> Settings:
    """Settings from the environment and from `given`, which wins; a bad value is named with its variable."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from contexture.config import Settings

    try:
        return Settings(**given)
    except ValidationError as failure:
        first = failure.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        variable = name if name.isupper() else f"CONTEXTURE_{name.upper()}"  # one with an alias says so
        source = f"--{name.replace('_', '-')}" if name in given else variable
        raise InvalidRequest(f"{source} is {first['input']!r}: {first['msg']}") from failure
    except SettingsError as failure:
        raise InvalidRequest(f"{failure}; lists are written as JSON, such as '[\"sales\"]'") from failure


def existing(settings: Settings) -> Settings:
    """The same settings, once it is sure that there is a store to read."""
    if not settings.database and not (settings.home / "truth.sqlite").is_file():
        raise NotFound(f"there is no store in {str(settings.home)!r}; load something first: contexture ingest PATH")
    return settings


def with_engine(settings: Settings, work: Callable[[Contexture], Awaitable[T]]) -> T:
    """What `work` returns, given an engine that is closed afterwards."""
    from contexture.cli.logs import to_stderr
    from contexture.engine import open_store

    to_stderr()

    async def run() -> T:
        async with open_store(settings) as engine:
            return await work(engine)

    return asyncio.run(run())


def command(app: typer.Typer, name: str, *, acting: bool = False) -> Callable[[Callable[..., None]], None]:
    """Register a command that also takes the common options, and whose errors are reported.

    The function gets them as its first argument; `acting` adds those that say who asks.
    """
    extra = {**(_ACTING if acting else {}), **_EVERYWHERE}

    def register(function: Callable[..., None]) -> None:
        def run(ctx: typer.Context, **given: Any) -> None:
            shared = {option: given.pop(option) for option in extra}
            shared["home"] = shared["home"] or ctx.obj
            common = Common(**shared)
            with reported(as_json=common.as_json):
                function(common, **given)

        run.__doc__ = function.__doc__
        run.__signature__ = _signature(function, extra)  # pyright: ignore[reportFunctionMemberAccess] - typer reads it
        app.command(name)(run)

    return register


def _signature(function: Callable[..., None], extra: dict[str, tuple[Any, Any]]) -> inspect.Signature:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    shared = [inspect.Parameter(name, keyword, default=value, annotation=kind) for name, (kind, value) in extra.items()]
    return inspect.Signature([context, *(each.replace(kind=keyword) for each in own), *shared])
