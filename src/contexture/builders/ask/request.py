"""The request of a question over everything, `AskRecipe`, and the JSON form stored in capsules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from contexture.builders.sources import SourceKind
from contexture.errors import InvalidRequest
from contexture.json_objects import NOT_BLANK, parse_object
from contexture.pipeline.fence import FENCE_VERSION, MaterialRole
from contexture.pipeline.knapsack import Packer

CAPSULE_KIND = "ask"
SYSTEM_PROMPT = (
    "Answer the question from the numbered material, which comes from different kinds of sources. "
    "Put the number of its source behind every statement, like [1] or [2, 3]. "
    "Copy figures and names exactly, and say so when the material does not hold the answer."
)
TOKENS_LIMIT = 100_000_000
MESSAGES_LIMIT = 200
ANSWER_FIELDS = ("model", "stream")
"""Fields of a question that only an answer needs, not a context."""


class AskMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of the conversation before a question."""

    role: Annotated[Literal["user", "assistant"], Meta(description="Who said it.")]
    content: Annotated[str, Meta(description="What was said.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class AskRequest:
    """A question over everything that the asker may read.

    AskRequest(query="Who repairs the pump, and what did it cost?")
    AskRequest(query="and in 2019?", history=(AskMessage(role="user", content="What did the pilot cost in 2018?"),))
    """

    query: Annotated[
        str,
        Meta(description="The question; not blank.", examples=["Who repairs the pump?"], extra_json_schema=NOT_BLANK),
    ]
    kinds: Annotated[
        tuple[SourceKind, ...],
        Meta(description="Kinds of sources to search; all if left out.", examples=[["pages", "news"]]),
    ] = ()
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=TOKENS_LIMIT)] | None,
        Meta(description="Token budget of the prompt; the configured one if left out.", examples=[2_000]),
    ] = None
    history: Annotated[
        tuple[AskMessage, ...],
        Meta(
            max_length=MESSAGES_LIMIT,
            description="The conversation before the question, oldest message first.",
        ),
    ] = ()
    system: Annotated[
        str | None, Meta(description="Instructions before the material; the built-in ones if left out.")
    ] = None
    model: Annotated[
        str | None, Meta(description="One of the configured models to answer; the default model if left out.")
    ] = None
    stream: Annotated[
        bool, Meta(description="Answer with server-sent events: the context, pieces of the answer, the checked answer.")
    ] = field(default=False, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class AskRecipe:
    """Settings for composing the prompt of a question over everything.

    Each kind of source with candidates is guaranteed `kind_share` of the room, as far as it can use it; the rest goes
    to the most relevant. History has at most `history_share`. `floor` is the least score, and `best_share` the least
    share of the best score, that a candidate needs. `sharpness` and `extracts` are as for a plain query.
    """

    packer: Packer = Packer.OPTIMAL
    floor: float = 0.3
    best_share: float = 0.4
    kind_share: float = 0.12
    history_share: float = 0.25
    near_duplicate: float = 0.85
    sharpness: float = 4.0
    extracts: int = 3
    material_role: MaterialRole = MaterialRole.USER
    fence_version: int = FENCE_VERSION


def parse_ask(data: Mapping[str, Any], *, answering: bool) -> AskRequest:
    """Parse a JSON object; `model` and `stream` are accepted only with `answering`.

    Raises `InvalidRequest` naming every field that is missing, unknown or invalid.
    """
    return parse_object(AskRequest, data, what="a question", without=() if answering else ANSWER_FIELDS)


def check_request(request: AskRequest) -> AskRequest:
    """The request itself, once valid; raises `InvalidRequest` naming what is wrong."""
    if not isinstance(request.query, str) or not request.query.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidRequest("the query is empty")
    most = cast("object", request.max_tokens)  # callers without a type checker
    if not (most is None or (isinstance(most, int) and not isinstance(most, bool) and 1 <= most <= TOKENS_LIMIT)):
        raise InvalidRequest(f"max_tokens must be a whole number from 1 to {TOKENS_LIMIT}, not {most!r}")
    if unknown := [name for name in request.kinds if name not in list(SourceKind)]:
        raise InvalidRequest(f"kinds names {unknown[0]!r}; it can name {', '.join(SourceKind)}")
    return request


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanAsk:
    """A question as a capsule stores it: redacted, with what it means by itself and the history that was read.

    `standalone` equals `query` unless the question is a follow-up. `older` is how many messages before `history` were
    not read.
    """

    query: str
    standalone: str
    system: str
    max_tokens: int
    kinds: tuple[SourceKind, ...]
    history: tuple[AskMessage, ...] = ()
    older: int = 0
    session_id: str = ""


def ask_to_json(asked: CleanAsk) -> dict[str, Any]:
    """The question as the JSON object a capsule stores."""
    return msgspec.to_builtins(asked)


def ask_from_json(data: Mapping[str, Any]) -> CleanAsk:
    """The inverse of `ask_to_json`; raises `InvalidRequest` for a missing or invalid field."""
    try:
        return msgspec.convert(data, CleanAsk)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this is not a question over everything: {failure}") from failure
