"""What a command builder returns, `CommandContext`, and the `CommandError` it raises instead."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from typing_extensions import TypedDict

from contexture import errors
from contexture.builders.command.compose import CommandDocument, CommandDocumentJson
from contexture.builders.command.request import (
    MEMORY_TTL_DAYS,
    AbTest,
    CommandLimits,
    CommandModels,
    CommandParams,
    GraphPlan,
    MemoryPlan,
    read_user_language,
    read_version,
)
from contexture.builders.command.syntax import Command, ParsedCommand, Window
from contexture.capsule import Capsule
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.results import Digest, JsonResult
from contexture.types import ChatMessage, Citation, Message, Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieval:
    """The documents, and the parameters of the last search that found any of them."""

    docs: tuple[CommandDocument, ...]
    window: Window
    lang: str
    sources: tuple[str, ...] | None
    rerank_enabled: bool

    @property
    def k_final(self) -> int:
        """How many documents there are."""
        return len(self.docs)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveryStep:
    """One recovery step taken: its rule (`rung` on the wire), what it changed, and how many documents it added."""

    rung: str
    done: str
    found: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandContext(JsonResult):
    """Everything needed to execute a command, the ledger that explains it, and the capsule that rebuilds it.

    `asked` is the parsed command with known secrets masked but personal data not redacted: it is for the code that
    executes the command and is never shown. Everything else is redacted. `messages` show the fenced documents to a
    model.
    """

    command: Command
    params: CommandParams
    retrieval: Retrieval
    graph: GraphPlan
    memory: MemoryPlan
    models: CommandModels
    limits: CommandLimits
    version: str
    ab_test: AbTest
    recovery: tuple[RecoveryStep, ...]
    messages: tuple[Message, ...]
    tokens: int
    ledger: Ledger
    capsule: Capsule
    now: datetime
    asked: ParsedCommand = field(repr=False)
    answer_lang: str = ""
    timings: dict[str, float] = field(default_factory=dict[str, float], compare=False)

    @property
    def build_id(self) -> str:
        """The id of the build, which is also the correlation id."""
        return self.capsule.build_id

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations of this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citation of each document's snippet, in document order."""
        return tuple(found for each in self.retrieval.docs if (found := each.citation))

    def json_form(self) -> CommandContextJson:
        """The context with its ledger, without timings, so that equal builds give equal bytes."""
        return {
            "command": self.command,
            "params": params_to_json(self.params),
            "retrieval": _retrieval_to_json(self.retrieval),
            "graph": {
                "enabled": self.graph.enabled,
                "entities": None,
                "relations": None,
                "build_policy": self.graph.build_policy,
                "hop_limit": self.graph.hop_limit,
            },
            "memory": _memory_to_json(self.memory),
            "models": {"primary": self.models.primary, "fallback": self.models.fallback},
            "limits": _limits_to_json(self.limits),
            "telemetry": {"correlation_id": self.build_id, "version": self.version},
            "ab_test": {"experiment": self.ab_test.experiment, "arm": self.ab_test.arm},
            "recovery": self.recovery,
            "degradations": self.degradations,
            "ledger": self.ledger.entries,
            "citations": self.citations,
            "messages": cast("tuple[ChatMessage, ...]", self.messages),
            "tokens": self.tokens,
            "digest": self.capsule.digest,
        }


class CommandFlagsJson(TypedDict):
    """Switches of a command."""

    rerank_enabled: bool


class CommandParamsJson(TypedDict):
    """Resolved parameters of a command; those that were not given are null."""

    window: Window
    lang: str
    sources: list[str] | None
    topic: str | None
    entity: str | None
    domains: list[str] | None
    query: str | None
    k_final: int
    flags: CommandFlagsJson


class RetrievalJson(TypedDict):
    """The documents, and the parameters of the last search that found any of them."""

    docs: list[CommandDocumentJson]
    window: Window
    lang: str
    sources: list[str] | None
    k_final: int
    rerank_enabled: bool


class GraphJson(TypedDict):
    """How the graph of a command is built; entities and relations are null until the command is executed."""

    enabled: bool
    entities: tuple[GraphNode, ...] | None
    relations: tuple[GraphEdge, ...] | None
    build_policy: str
    hop_limit: int


class SemanticKeyJson(TypedDict):
    """A subject to remember, and for how long."""

    key: str
    ttl_days: float


class CommandMemoryJson(TypedDict):
    """Whether a command reads or writes memory; `episodic` is null until the command is executed."""

    enabled: bool
    episodic: tuple[Episode, ...] | None
    semantic_keys: list[SemanticKeyJson] | None


class CommandModelsJson(TypedDict):
    """The primary model of a command, and its fallbacks in order."""

    primary: str
    fallback: tuple[str, ...]


class CommandLimitsJson(TypedDict):
    """Token, cost and time limits of executing a command."""

    max_tokens: int
    budget_cents: int
    timeout_s: float


class TelemetryJson(TypedDict):
    """Correlation id of a command in the log, and the version of its caller."""

    correlation_id: str
    version: str


class AssignedArmJson(TypedDict):
    """The experiment of a command, and its arm."""

    experiment: str | None
    arm: str | None


class CommandContextJson(TypedDict):
    """The context of a slash command."""

    command: Command
    params: CommandParamsJson
    retrieval: RetrievalJson
    graph: GraphJson
    memory: CommandMemoryJson
    models: CommandModelsJson
    limits: CommandLimitsJson
    telemetry: TelemetryJson
    ab_test: AssignedArmJson
    recovery: tuple[RecoveryStep, ...]
    degradations: tuple[Degradation, ...]
    ledger: tuple[LedgerEntry, ...]
    citations: tuple[Citation, ...]
    messages: tuple[ChatMessage, ...]
    tokens: int
    digest: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphNode:
    """An entity with the articles that mention it."""

    name: str
    kind: str
    aliases: tuple[str, ...]
    articles: tuple[str, ...]
    mentions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphEdge:
    """A relation between two named entities, with its articles and evidence."""

    head: str
    tail: str
    label: str
    strength: float
    articles: tuple[str, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """A stored or recalled memory and its evidence: the article it came from, or the memory itself."""

    id: str
    text: str
    kind: str
    time: str
    score: float
    evidence: tuple[int, ...]


def params_to_json(params: CommandParams) -> CommandParamsJson:
    """Parameters as they are sent."""
    return {
        "window": params.window,
        "lang": params.lang,
        "sources": _list_or_none(params.sources),
        "topic": params.topic,
        "entity": params.entity,
        "domains": _list_or_none(params.domains),
        "query": params.query,
        "k_final": params.k_final,
        "flags": {"rerank_enabled": params.rerank_enabled},
    }


def _limits_to_json(limits: CommandLimits) -> CommandLimitsJson:
    """Limits as they are sent; whole seconds are whole numbers."""
    seconds = limits.timeout_s
    return {
        "max_tokens": limits.max_tokens,
        "budget_cents": limits.budget_cents,
        "timeout_s": int(seconds) if seconds.is_integer() else seconds,
    }


def _retrieval_to_json(found: Retrieval) -> RetrievalJson:
    return {
        "docs": [each.json_form() for each in found.docs],
        "window": found.window,
        "lang": found.lang,
        "sources": _list_or_none(found.sources),
        "k_final": found.k_final,
        "rerank_enabled": found.rerank_enabled,
    }


def _memory_to_json(plan: MemoryPlan) -> CommandMemoryJson:
    keys = plan.semantic_keys
    return {
        "enabled": plan.enabled,
        "episodic": None,
        "semantic_keys": None if keys is None else [{"key": key, "ttl_days": MEMORY_TTL_DAYS} for key in keys],
    }


def _list_or_none(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


NOTHING_FOUND_MESSAGE = "No documents found for query"
UNEXPECTED_ERROR_MESSAGE = (
    "Something went wrong on our side. Please try again, and give the correlation id when you report it."
)

NOTHING_FOUND_MESSAGES = {"ru": "По запросу ничего не найдено"}
UNEXPECTED_ERROR_MESSAGES = {
    "ru": "На нашей стороне произошла ошибка. Повторите запрос и назовите correlation id, если сообщите о ней."
}
REFUSED_MESSAGES = {"ru": "Команду не удалось выполнить, запрос нужно исправить: {reason}"}
UNAVAILABLE_MESSAGES = {"ru": "Источник данных сейчас недоступен. Повторите запрос позже."}
TIMEOUT_MESSAGES = {"ru": "Время на ответ истекло раньше, чем ответил источник данных. Повторите запрос позже."}
"""The same messages for users of other languages; the reason of a refusal names parts of the command as typed."""

_RUSSIAN_REASONS = tuple(
    (re.compile(pattern), translated)
    for pattern, translated in (
        (r" at character (\d+)", r" (символ \1)"),
        (r"^there is no command; begin with one of (.+?), such as (.+)$", r"команды нет; начните с \1, например \2"),
        (r" is not a command; did you mean (.+)\?$", r" — не команда; возможно, имелось в виду \1?"),
        (r" is not a command; there are (.+)$", r" — не команда; есть \1"),
        (
            r" is not a mode of /memory; did you mean (.+?)\? Words to look for can stand in quotes: ",
            r" — не режим /memory; возможно, имелось в виду \1? Слова для поиска можно взять в кавычки: ",
        ),
        (r" is not an argument; did you mean (.+?)\? ", r" — не аргумент; возможно, имелось в виду \1? "),
        (r" is not an argument; there are (.+?)\. ", r" — не аргумент; есть \1. "),
        (r"Text to be taken as it is can stand in quotes\.$", "Текст, который нужен как есть, можно взять в кавычки."),
        (r" is not a value of (\w+): give one of ", r" — не значение \1: подходят "),
        (
            r" is not a value of (\w+): give a whole number from (\d+) to (\d+)",
            r" — не значение \1: укажите целое число от \2 до \3",
        ),
        (r", such as (\S+)$", r", например \1"),
        (r"^(\w+) is given again (\(.+?\)); say it once: ", r"\1 указано ещё раз \2; укажите один раз: "),
        (r"^(\w+) (\(.+?\)) has no value; write ", r"у \1 \2 нет значения; напишите "),
        (
            r"^the quote (\(.+?\)) is not closed: (.+); put (.) where it ends$",
            r"кавычка \1 не закрыта: \2; поставьте \3",
        ),
        (r"^the command has ([\d,]+) characters; write at most ([\d,]+)$", r"в команде \1 знаков; допустимо \2"),
        (r"^there is nothing to store; say what, as in ", "нечего сохранять; скажите, что именно: "),
    )
)


def translate_reason(reason: str, lang: str) -> str:
    """Why a command was refused, in Russian where there is a translation; what was typed stays as it is."""
    for pattern, translated in _RUSSIAN_REASONS if lang == "ru" else ():
        reason = pattern.sub(translated, reason, count=1)
    return reason


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandErrorFactory:
    """Makes the errors of one command.

    All have the same correlation id, which is derived from request, scope and time.
    """

    version: str
    correlation_id: str
    lang: str = "en"

    def nothing_found(self, steps: Sequence[RecoveryStep]) -> errors.NothingFound:
        """`NothingFound`, listing every recovery step tried."""
        tried = ", ".join(step.done for step in steps) or "none"
        tech = f"Retrieval returned 0 documents after auto-recovery. Steps: {tried}"
        message = NOTHING_FOUND_MESSAGES.get(self.lang, NOTHING_FOUND_MESSAGE)
        return errors.NothingFound(message, tech=tech, version=self.version, correlation_id=self.correlation_id)

    def from_error(self, failure: errors.ContextError) -> errors.CommandError:
        """A `ContextError` converted to the matching `CommandError`."""
        kind, messages = errors.CommandFailed, UNEXPECTED_ERROR_MESSAGES
        if isinstance(failure, errors.RequestError):
            kind, messages = errors.CommandRefused, REFUSED_MESSAGES
        elif isinstance(failure, errors.SourceError):
            late = isinstance(failure, errors.SourceTimeout)
            kind, messages = errors.CommandUnavailable, TIMEOUT_MESSAGES if late else UNAVAILABLE_MESSAGES
        reason = translate_reason(str(failure), self.lang)
        message = messages.get(self.lang, "{reason}").replace("{reason}", reason)
        tech = f"the command gave no context, {type(failure).__name__}: {failure}"
        return kind(message, tech=tech, version=self.version, correlation_id=self.correlation_id)

    def from_unexpected(self, failure: Exception) -> errors.CommandFailed:
        """An unexpected exception as `CommandFailed`.

        Only its type is reported, because its message may contain anything.
        """
        tech = f"the command failed, {type(failure).__name__}"
        message = UNEXPECTED_ERROR_MESSAGES.get(self.lang, UNEXPECTED_ERROR_MESSAGE)
        return errors.CommandFailed(message, tech=tech, version=self.version, correlation_id=self.correlation_id)


@contextmanager
def command_error_boundary(given: object, scope: Scope, now: datetime) -> Generator[CommandErrorFactory]:
    """Raise every exception inside as the `CommandError` of this request, with the original as its cause.

    `ImportError` passes through: it names a part that is not installed.
    """
    answer = make_error_factory(given, scope, now, read_version(given))
    try:
        yield answer
    except (errors.CommandError, ImportError):
        raise
    except errors.ContextError as failure:
        raise answer.from_error(failure) from failure
    except Exception as failure:  # callers get a `CommandError` for unexpected errors too; the original is its cause
        raise answer.from_unexpected(failure) from failure


def make_error_factory(given: object, scope: Scope, now: datetime, version: str) -> CommandErrorFactory:
    """The error factory for a request, which may be malformed.

    The correlation id is a hash of request, scope and time.
    """
    lang = read_user_language(given) or "en"
    said = sorted(map(repr, cast("Mapping[object, object]", given).items())) if isinstance(given, Mapping) else given
    named = f"{said!r}\0{scope.tenant}\0{scope.user}\0{now.isoformat()}"
    number = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return CommandErrorFactory(version=version, correlation_id=f"ctx-error-{number}", lang=lang)
