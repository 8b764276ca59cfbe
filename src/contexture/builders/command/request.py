"""What a command builder is given: the command, its arguments, and the surroundings it was typed in."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

from contexture.builders.command.windows import Window
from contexture.errors import InvalidRequest
from contexture.retrieval.prepare import mended

Lang = Literal["ru", "en", "auto"]

OURS = version("contexture")
"""The version to answer with where the surroundings have none."""

_NAME_CHARS = 200
_NAME = Annotated[str, Meta(max_length=_NAME_CHARS)]
_LANGS: tuple[Lang, ...] = ("ru", "en")


class Defaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds where the arguments say nothing; limits below their floors are raised to them."""

    window: Window | None = None
    k_final: int | None = None
    lang: Lang | None = None
    rerank_enabled: bool | None = None
    timeout_s: Annotated[float, Meta(ge=0, le=3_600)] | None = None
    budget_cents: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None


class Flags(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be done to find documents; `strict_k` refuses a context with fewer than five."""

    enable_rerank: bool = True
    auto_expand_window: bool = True
    relax_filters_on_empty: bool = True
    fallback_rerank_false_on_empty: bool = True
    strict_k: bool = False


class Env(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The surroundings of a command."""

    defaults: Defaults | None = None
    feature_flags: Flags | None = None
    version: _NAME | None = None


class AbTest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The experiment a command takes part in; without an arm, one is assigned."""

    experiment: _NAME | None = None
    arm: _NAME | None = None


class CommandRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command as it was typed, and what surrounds it.

    CommandRequest(raw_command="/ask", args="window=24h topic=AI", user_lang="en")
    """

    raw_command: str
    args: str | None = None
    user_lang: Annotated[str, Meta(max_length=35)] | None = None
    env: Env | None = None
    ab_test: AbTest | None = None

    @property
    def line(self) -> tuple[str, str]:
        """The command and its arguments in valid Unicode."""
        return mended(self.raw_command), mended(self.args or "")

    @property
    def defaults(self) -> Defaults:
        """The defaults of the surroundings."""
        return (self.env and self.env.defaults) or Defaults()

    @property
    def flags(self) -> Flags:
        """The feature flags of the surroundings."""
        return (self.env and self.env.feature_flags) or Flags()

    @property
    def version(self) -> str:
        """Whose version answers carry: that of the surroundings, else ours."""
        return mended((self.env and self.env.version) or OURS)

    @property
    def speaks(self) -> Lang | None:
        """The language of the user where it says something: `ru-RU` is `ru`, and one we do not sort by is none."""
        spoken = (self.user_lang or "").strip().lower().replace("_", "-").partition("-")[0]
        return next((lang for lang in _LANGS if lang == spoken), None)


def request_of(given: CommandRequest | Mapping[str, Any]) -> CommandRequest:
    """The request that an object says; what is missing, unknown or of the wrong kind is named."""
    if isinstance(given, CommandRequest):
        return given
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidRequest(f"a command must be an object, not {type(given).__name__}")
    try:
        return msgspec.convert(dict(given), CommandRequest)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"the request cannot be read: {_said(failure)}") from failure


def version_of(given: object) -> str:
    """The version to answer with where the request itself cannot be read."""
    said = _part(_part(given, "env"), "version")
    return mended(said) if isinstance(said, str) and 0 < len(said) <= _NAME_CHARS else OURS


def _part(whole: object, name: str) -> object:
    if isinstance(whole, Mapping):
        return cast("Mapping[str, object]", whole).get(name)
    return cast("object", getattr(whole, name, None))


def _said(failure: msgspec.ValidationError) -> str:
    return str(failure).replace("`$.", "`").replace("Object contains unknown field", "unknown field")
