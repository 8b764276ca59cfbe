"""The request of a slash command, and everything resolved from it.

Experiment arm, parameters with defaults, limits, graph and memory plans, models.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, cast

from msgspec import Meta, Struct

from contexture.builders.command.syntax import BOUNDS, ArgumentKey, Command, ParsedCommand, Window
from contexture.errors import InvalidRequest
from contexture.json_objects import parse_object
from contexture.text.unicode import repair_text
from contexture.types import Scope

Lang = Literal["ru", "en", "auto"]

PACKAGE_VERSION = version("contexture-ai")
"""The version reported when the request's environment has none."""

_NAME_CHARS = 200
_NAME = Annotated[str, Meta(max_length=_NAME_CHARS)]
_LANGS: tuple[Lang, ...] = ("ru", "en")


class Defaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults for arguments that are not given; limits below their minimum are raised to it."""

    window: Annotated[Window | None, Meta(description="Period that is searched.")] = None
    k_final: Annotated[int | None, Meta(description="Documents to return.")] = None
    lang: Annotated[Lang | None, Meta(description="Language of the articles.")] = None
    rerank_enabled: Annotated[bool | None, Meta(description="Whether results are reranked.")] = None
    timeout_s: Annotated[
        Annotated[float, Meta(ge=0, le=3_600)] | None, Meta(description="Seconds that executing may take.")
    ] = None
    budget_cents: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None, Meta(description="Cents that models may cost.")
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=10_000_000)] | None, Meta(description="Token budget of the prompt.")
    ] = None


class Flags(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Feature flags: allowed search and recovery steps; `strict_k` rejects a context with fewer than five documents."""

    enable_rerank: Annotated[bool, Meta(description="Allow reranking.")] = True
    auto_expand_window: Annotated[bool, Meta(description="Widen the window when too little is found.")] = True
    relax_filters_on_empty: Annotated[bool, Meta(description="Drop filters when nothing is found.")] = True
    fallback_rerank_false_on_empty: Annotated[
        bool, Meta(description="Search without reranking when nothing is found.")
    ] = True
    strict_k: Annotated[bool, Meta(description="Refuse a context with fewer than five documents.")] = False


class Env(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The environment of a command: defaults, feature flags and version."""

    defaults: Annotated[Defaults | None, Meta(description="Values of arguments that are not given.")] = None
    feature_flags: Annotated[Flags | None, Meta(description="Steps of search and recovery that are allowed.")] = None
    version: Annotated[_NAME | None, Meta(description="Version of the application, repeated in the answer.")] = None


class AbTest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The experiment of a command; without an arm, one is assigned."""

    experiment: Annotated[_NAME | None, Meta(description="Name of the experiment.")] = None
    arm: Annotated[_NAME | None, Meta(description="Name of the arm; assigned if left out.")] = None


class CommandRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command line as it was typed, the user's language, environment and experiment.

    CommandRequest(raw_command="/ask", args="window=24h topic=AI", user_lang="en")
    """

    raw_command: Annotated[
        str,
        Meta(
            description="The command, such as `/ask`; its arguments may follow it.",
            examples=["/ask who repairs the pump? window=1w"],
        ),
    ]
    args: Annotated[
        str | None, Meta(description="Arguments that do not follow the command, such as `window=24h topic=AI`.")
    ] = None
    user_lang: Annotated[
        Annotated[str, Meta(max_length=35)] | None,
        Meta(description="Language of the user, such as `en`, `ru-RU` or `auto`.", examples=["en"]),
    ] = None
    answer_lang: Annotated[
        Lang | None, Meta(description="Language of the answer, if it is not that of the sources or the question.")
    ] = None
    env: Annotated[Env | None, Meta(description="Defaults, feature flags and version of the application.")] = None
    ab_test: Annotated[AbTest | None, Meta(description="The experiment, and the arm if it is chosen already.")] = None

    @property
    def line(self) -> tuple[str, str]:
        """The command and its arguments in valid Unicode."""
        return repair_text(self.raw_command), repair_text(self.args or "")

    @property
    def defaults(self) -> Defaults:
        """The defaults of the environment."""
        return (self.env and self.env.defaults) or Defaults()

    @property
    def flags(self) -> Flags:
        """The feature flags of the environment."""
        return (self.env and self.env.feature_flags) or Flags()

    @property
    def version(self) -> str:
        """The version reported in results: that of the environment, else that of this package."""
        return repair_text((self.env and self.env.version) or PACKAGE_VERSION)

    @property
    def speaks(self) -> Lang | None:
        """The language of the user, `ru` for `ru-RU`; None when it is not one of the supported languages."""
        return to_supported_language(self.user_lang or "")


def parse_request(given: CommandRequest | Mapping[str, Any]) -> CommandRequest:
    """Parse an object into a request.

    Raises `InvalidRequest` naming the field that is missing, unknown or of the wrong type.
    """
    if isinstance(given, CommandRequest):
        return given
    return parse_object(CommandRequest, given, what="a command")


def read_version(given: object) -> str:
    """The version to answer with when the request itself cannot be parsed."""
    said = _get_part(_get_part(given, "env"), "version")
    return repair_text(said) if isinstance(said, str) and 0 < len(said) <= _NAME_CHARS else PACKAGE_VERSION


def read_user_language(given: object) -> Lang | None:
    """The language of the user, also of a request that cannot be parsed."""
    said = _get_part(given, "user_lang")
    return to_supported_language(said) if isinstance(said, str) else None


def to_supported_language(said: str) -> Lang | None:
    """The language of a tag, `ru` for `ru-RU`; None when it is not one of the supported languages."""
    spoken = said.strip().lower().replace("_", "-").partition("-")[0]
    return next((lang for lang in _LANGS if lang == spoken), None)


def _get_part(whole: object, name: str) -> object:
    if isinstance(whole, Mapping):
        return cast("Mapping[str, object]", whole).get(name)
    return cast("object", getattr(whole, name, None))


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentArm:
    """What an experiment arm changes; None changes nothing.

    `lexical` is the weight of lexical overlap in a passage's score, the rest is semantic similarity.
    """

    k_final: int | None = None
    rerank: bool | None = None
    lexical: float | None = None

    def __post_init__(self) -> None:
        if self.lexical is not None and not 0 <= self.lexical <= 1:
            raise InvalidRequest(f"`lexical` is a share from 0 to 1, not {self.lexical}")


Experiments = Mapping[str, Mapping[str, ExperimentArm]]


def assign_arm(asked: AbTest, experiments: Experiments, scope: Scope) -> tuple[AbTest, ExperimentArm]:
    """The experiment with its arm, and what the arm changes.

    An unknown experiment changes nothing. Without an arm, one is chosen by a hash of experiment, tenant and user.
    """
    arms = experiments.get(asked.experiment or "", {})
    if not arms:
        return asked, ExperimentArm()
    if asked.arm is not None:
        if asked.arm not in arms:
            raise InvalidRequest(
                f"experiment {asked.experiment!r} has no arm {asked.arm!r}; there are {', '.join(sorted(arms))}"
            )
        return asked, arms[asked.arm]
    chosen = sorted(arms)[_hash_user(asked.experiment or "", scope) % len(arms)]
    return AbTest(experiment=asked.experiment, arm=chosen), arms[chosen]


def _hash_user(experiment: str, scope: Scope) -> int:
    name = f"{experiment}\0{scope.tenant}\0{scope.user}"
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8])


T = TypeVar("T")

FALLBACK_QUERY = "latest news"
MEMORY_TTL_DAYS = 90

_DEFAULT_WINDOW, _DEFAULT_K = Window.DAY, 6
_DEFAULT_TOKENS, _DEFAULT_CENTS, _DEFAULT_SECONDS = 4_096, 60, 18.0
MIN_LIMITS = {"max_tokens": 2_048, "budget_cents": 25, "timeout_s": 8}
"""The minimum of each limit; lower values are raised to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandParams:
    """Resolved parameters of a command; those that were not given are None."""

    window: Window
    lang: str
    sources: tuple[str, ...] | None
    topic: str | None
    entity: str | None
    domains: tuple[str, ...] | None
    query: str | None
    k_final: int
    rerank_enabled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLimits:
    """Token, cost and time limits of executing a command."""

    max_tokens: int
    budget_cents: int
    timeout_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphPlan:
    """How the graph of a command is built; entities and relations are found when the command is executed."""

    enabled: bool
    build_policy: str
    hop_limit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPlan:
    """Whether a command reads or writes memory, and under which keys."""

    enabled: bool
    semantic_keys: tuple[str, ...] | None


def resolve_params(parsed: ParsedCommand, request: CommandRequest, arm: ExperimentArm) -> CommandParams:
    """Parameters by precedence: arguments, user language, experiment arm, request defaults, built-in defaults."""
    defaults, low_high = request.defaults, BOUNDS[ArgumentKey.K]
    k = first_given(parsed.k, arm.k_final, defaults.k_final, _DEFAULT_K)
    wanted = first_given(parsed.rerank, arm.rerank, defaults.rerank_enabled, True)
    return CommandParams(
        window=first_given(parsed.window, defaults.window, _DEFAULT_WINDOW),
        lang=first_given(parsed.lang, request.speaks, defaults.lang, "auto"),
        sources=parsed.sources or None,
        topic=parsed.topic,
        entity=parsed.entity,
        domains=parsed.domains or None,
        query=parsed.query or parsed.text or None,
        k_final=min(max(k, low_high[0]), low_high[1]),
        rerank_enabled=request.flags.enable_rerank and wanted,
    )


def search_text(parsed: ParsedCommand) -> str:
    """The search text: the query, else topic or entity with the remaining text, else `FALLBACK_QUERY`."""
    subject = parsed.topic or parsed.entity or ""
    return parsed.query or f"{subject} {parsed.text}".strip() or FALLBACK_QUERY


def resolve_limits(request: CommandRequest) -> CommandLimits:
    """The limits of the request, none below its minimum."""
    given = request.defaults
    return CommandLimits(
        max_tokens=max(first_given(given.max_tokens, _DEFAULT_TOKENS), MIN_LIMITS["max_tokens"]),
        budget_cents=max(first_given(given.budget_cents, _DEFAULT_CENTS), MIN_LIMITS["budget_cents"]),
        timeout_s=max(first_given(given.timeout_s, _DEFAULT_SECONDS), float(MIN_LIMITS["timeout_s"])),
    )


def plan_graph(parsed: ParsedCommand) -> GraphPlan:
    """The graph plan; enabled only for `/graph query`."""
    if parsed.command is not Command.GRAPH:
        return GraphPlan(enabled=False, build_policy="cached_only", hop_limit=1)
    return GraphPlan(enabled=True, build_policy=parsed.policy or "on_demand", hop_limit=parsed.hops or 2)


def plan_memory(command: Command, params: CommandParams) -> MemoryPlan:
    """The memory plan, with keys from query and topic; enabled only for memory commands."""
    if not command.is_memory:
        return MemoryPlan(enabled=False, semantic_keys=None)
    named = (params.query, params.topic)
    return MemoryPlan(enabled=True, semantic_keys=tuple(dict.fromkeys(name for name in named if name)))


def first_given(*given: T | None) -> T:
    """The first value that is not None; the last one must be given."""
    return next(value for value in given if value is not None)


Routing = Mapping[str, tuple[str, ...]]

DEFAULT_ROUTING: Routing = MappingProxyType(
    {
        Command.ASK: ("gpt-5", "claude-4.5", "gemini-2.5-pro"),
        Command.EVENTS: ("gpt-5", "gemini-2.5-pro", "claude-4.5"),
        Command.GRAPH: ("claude-4.5", "gpt-5", "gemini-2.5-pro"),
        Command.SYNTHESIZE: ("gpt-5", "claude-4.5"),
        Command.SUGGEST: ("gemini-2.5-pro", "gpt-5"),
        Command.STORE: ("gemini-2.5-pro", "gpt-5"),
        Command.RECALL: ("gemini-2.5-pro", "gpt-5"),
    }
)
"""For each command its primary model, then its fallbacks in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandModels:
    """The primary model of a command, and its fallbacks in order."""

    primary: str
    fallback: tuple[str, ...]


def override_routing(changes: Routing) -> Routing:
    """The default routing with other models for some commands; raises `InvalidRequest` for an unknown command."""
    for command, names in changes.items():
        if command not in DEFAULT_ROUTING:
            raise InvalidRequest(f"{command!r} is not a command; there are {', '.join(DEFAULT_ROUTING)}")
        if not names or not all(names):
            raise InvalidRequest(f"{command!r} needs at least one model")
    return MappingProxyType({**DEFAULT_ROUTING, **changes})


def select_models(command: Command, table: Routing = DEFAULT_ROUTING) -> CommandModels:
    """The models of a command."""
    primary, *fallback = table[command]
    return CommandModels(primary=primary, fallback=tuple(fallback))
