"""Bodies and answers of the OpenAI-compatible routes, and their errors."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from typing_extensions import TypedDict

from contexture.answer.chat_types import MAX_ANSWER_TOKENS, MemoryCitation
from contexture.answer.completions import Choice, Completion, CompletionRequest, CompletionStarted
from contexture.builders.turn.request import MAX_PROMPT_TOKENS
from contexture.ledger import Degradation
from contexture.results import FreeJson
from contexture.service._openapi import AnySpelling
from contexture.types import ChatMessage, Matrix

DEFAULT_MODEL = "contexture"
"""The model name that clients use to select the configured default model."""

MAX_EMBEDDED_TEXTS = 2_048


def _check_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("input should be an object")  # noqa: TRY004 - pydantic reports this one
    return cast("dict[str, Any]", value)


MessageField: TypeAlias = Annotated[dict[str, Any], PlainValidator(_check_object, json_schema_input_type=ChatMessage)]
"""A message; the builder of turns checks its fields."""


class StreamOptions(BaseModel):
    """Options of a streamed completion."""

    model_config = ConfigDict(extra="allow", strict=True)

    include_usage: Annotated[bool | None, Field(description="End with a chunk that has the token usage.")] = False


class CompletionBody(BaseModel):
    """Messages to answer. Fields that are not listed here, such as `tools`, are passed to the model as they are."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "When does the ferry leave?"}]}]},
    )

    messages: Annotated[
        list[MessageField],
        Field(
            min_length=1, max_length=10_000, description="The user's last one is answered; tool results may follow it."
        ),
    ]
    model: Annotated[str, Field(description="One of the models that are configured, or `contexture`.")] = DEFAULT_MODEL
    stream: Annotated[bool | None, Field(description="Answer with server-sent events.")] = None
    stream_options: Annotated[StreamOptions | None, Field(description="What a stream has besides its pieces.")] = None
    max_tokens: Annotated[
        int | None, Field(ge=1, le=MAX_ANSWER_TOKENS, description="Length of the answer in tokens."), AnySpelling
    ] = None
    max_completion_tokens: Annotated[
        int | None, Field(ge=1, le=MAX_ANSWER_TOKENS, description="Newer name of `max_tokens`."), AnySpelling
    ] = None
    max_prompt_tokens: Annotated[
        int | None, Field(ge=1, le=MAX_PROMPT_TOKENS, description="Token limit of the prompt."), AnySpelling
    ] = None
    n: Annotated[Literal[1] | None, Field(description="Only 1 is supported."), AnySpelling] = None
    store: Annotated[bool | None, Field(description="Remember what the user says and the answer.")] = None
    user: Annotated[
        str | None,
        Field(description="The user to act for, if the key has the scope `act_for`; otherwise passed to the model."),
    ] = None

    def to_request(self, *, session_id: str = "", acted_for: bool = False) -> CompletionRequest:
        """Convert to the engine's request; a session is stored, and so is what `store` asks for."""
        options = dict(self.model_extra or {})
        if self.user and not acted_for:
            options["user"] = self.user
        return CompletionRequest(
            messages=tuple(self.messages),
            model=None if self.model == DEFAULT_MODEL else self.model,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            max_prompt_tokens=self.max_prompt_tokens,
            options={name: value for name, value in options.items() if value is not None},
            session_id=session_id,
            store=bool(self.store) or bool(session_id and self.store is None),
        )


class EmbeddingsBody(BaseModel):
    """Texts to embed."""

    model_config = ConfigDict(extra="ignore", strict=True, json_schema_extra={"examples": [{"input": "a ferry"}]})

    input: Annotated[
        str | list[str], Field(description=f"A text, or up to {MAX_EMBEDDED_TEXTS:,} texts; none of them empty.")
    ]
    model: Annotated[str, Field(description="One of the embedders, or `contexture` for the multilingual one.")] = (
        DEFAULT_MODEL
    )
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="Numbers, or the bytes of 32-bit floats in base64.")
    ] = None
    dimensions: Annotated[int | None, Field(ge=1, description="Must be what the embedder gives."), AnySpelling] = None


class CompletionMessageJson(TypedDict):
    """The message of an answer, with whatever else the model gives."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    tool_calls: NotRequired[list[FreeJson]]


class CompletionChoiceJson(TypedDict):
    """The only choice of an answer."""

    index: int
    message: CompletionMessageJson
    finish_reason: str
    logprobs: FreeJson | None


class AddedContextJson(TypedDict):
    """What was added to a caller's messages."""

    build_id: str
    citations: tuple[MemoryCitation, ...]
    degradations: tuple[Degradation, ...]


class CompletionJson(TypedDict):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[CompletionChoiceJson]
    usage: Mapping[str, int]
    contexture: AddedContextJson


class CompletionDeltaJson(TypedDict):
    """What one chunk adds: the role in the first one, then text or parts of tool calls, and nothing in the last one."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    tool_calls: NotRequired[list[FreeJson]]


class ChunkChoiceJson(TypedDict):
    """The only choice of a chunk."""

    index: int
    delta: CompletionDeltaJson
    finish_reason: str | None
    logprobs: FreeJson | None


class CompletionChunkJson(TypedDict):
    """A chunk of a streamed completion; the last ones have `contexture`, and `usage` where it was requested."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoiceJson]
    contexture: NotRequired[AddedContextJson]
    usage: NotRequired[Mapping[str, int]]


class ModelJson(TypedDict):
    """A model that may be named."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsJson(TypedDict):
    """The models that a request may name."""

    object: Literal["list"]
    data: list[ModelJson]


class EmbeddingJson(TypedDict):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsJson(TypedDict):
    """The vectors of the texts, in order."""

    object: Literal["list"]
    data: list[EmbeddingJson]
    model: str
    usage: Mapping[str, int]


def completion_object(done: Completion) -> CompletionJson:
    """Return a complete answer."""
    message: Any = {"refusal": None, "content": None, **done.choice["message"], "role": "assistant"}
    return {
        "id": _completion_id(done.build_id),
        "object": "chat.completion",
        "created": int(done.created.timestamp()),
        "model": done.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": done.choice.get("finish_reason") or "stop",
                "logprobs": done.choice.get("logprobs"),
            }
        ],
        "usage": done.usage,
        "contexture": _added_object(done),
    }


def chunk_object(begun: CompletionStarted, piece: Choice, *, done: Completion | None = None) -> CompletionChunkJson:
    """Return a chunk of a stream; with `done`, the one that has the context of the answer."""
    chunk: CompletionChunkJson = {
        "id": _completion_id(begun.build_id),
        "object": "chat.completion.chunk",
        "created": int(begun.created.timestamp()),
        "model": done.model if done else begun.model,
        "choices": [
            {
                "index": 0,
                "delta": cast("CompletionDeltaJson", piece.get("delta") or {}),
                "finish_reason": piece.get("finish_reason"),
                "logprobs": piece.get("logprobs"),
            }
        ],
    }
    return {**chunk, "contexture": _added_object(done)} if done else chunk


def usage_object(begun: CompletionStarted, done: Completion) -> CompletionChunkJson:
    """Return the chunk after the last one, for clients that requested the token usage."""
    return {**chunk_object(begun, {}, done=done), "choices": [], "usage": done.usage}


def model_object(name: str) -> ModelJson:
    """Return a model that may be requested."""
    return {"id": name, "object": "model", "created": 0, "owned_by": DEFAULT_MODEL}


def embeddings_object(rows: Matrix, body: EmbeddingsBody, tokens: int) -> EmbeddingsJson:
    """Return vectors in the form that was asked for."""
    vectors = np.asarray(rows, dtype="<f4")

    def encode(row: Any) -> list[float] | str:
        return b64encode(row.tobytes()).decode() if body.encoding_format == "base64" else row.tolist()

    data: list[EmbeddingJson] = [
        {"object": "embedding", "index": at, "embedding": encode(row)} for at, row in enumerate(vectors)
    ]
    return {
        "object": "list",
        "data": data,
        "model": body.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _completion_id(build_id: str) -> str:
    return f"chatcmpl-{build_id.removeprefix('ctx-')}"


def _added_object(done: Completion) -> AddedContextJson:
    return {"build_id": done.build_id, "citations": done.citations, "degradations": done.degradations}
