"""Chat completions in the shape that clients of OpenAI speak, with what was added under `contexture`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from contexture.answer.completions import Begun, Completion, CompletionRequest
from contexture.service.wire.chat import MOST

USUAL = "contexture"
"""The name under which clients that must name a model ask for the one that is configured."""

Ignored = Annotated[float | None, Field(description="Accepted, and left to the configuration of the model.")]


class StreamOptions(BaseModel):
    """What a stream has besides its pieces."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False


class CompletionBody(BaseModel):
    """Messages to answer; what would change the answer and cannot be done is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    messages: Annotated[
        list[dict[str, Any]], Field(min_length=1, max_length=10_000, description="The last one is the user's.")
    ]
    model: Annotated[str, Field(description="One of the models that are configured, or `contexture`.")] = USUAL
    stream: Annotated[bool | None, Field(description="Answer with server-sent events.")] = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int | None, Field(ge=1, le=MOST, description="Length of the answer in tokens.")] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=MOST, description="The same by its newer name.")] = None
    max_prompt_tokens: Annotated[int | None, Field(ge=1, description="Token limit of the prompt.")] = None
    n: Annotated[Literal[1] | None, Field(description="One answer is given.")] = None
    user: Annotated[str | None, Field(description="Must be the caller's own.")] = None
    temperature: Ignored = None
    top_p: Ignored = None
    presence_penalty: Ignored = None
    frequency_penalty: Ignored = None
    seed: Annotated[int | None, Field(description="Accepted, and left to the configuration of the model.")] = None

    def request(self) -> CompletionRequest:
        """The same, as the engine takes it."""
        return CompletionRequest(
            messages=tuple(self.messages),
            model=None if self.model == USUAL else self.model,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            max_prompt_tokens=self.max_prompt_tokens,
        )


def completion_object(done: Completion) -> dict[str, Any]:
    """A whole answer."""
    message = {"role": "assistant", "content": done.text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return {
        "id": _id(done.build_id),
        "object": "chat.completion",
        "created": int(done.created.timestamp()),
        "model": done.model,
        "choices": [choice],
        "usage": done.usage,
        "contexture": _added(done),
    }


def chunk_object(begun: Begun, *, text: str | None = None, done: Completion | None = None) -> dict[str, Any]:
    """A piece of a stream: the first without a text, the last with what the answer was made from."""
    delta = {"content": text} if text is not None else {} if done else {"role": "assistant", "content": ""}
    told: dict[str, Any] = {
        "id": _id(begun.build_id),
        "object": "chat.completion.chunk",
        "created": int(begun.created.timestamp()),
        "model": done.model if done else begun.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": "stop" if done else None, "logprobs": None}],
    }
    return {**told, "contexture": _added(done)} if done else told


def usage_object(begun: Begun, done: Completion) -> dict[str, Any]:
    """The piece behind the last, for those who asked what it cost."""
    return {**chunk_object(begun, done=done), "choices": [], "usage": done.usage}


def models_object(names: tuple[str, ...]) -> dict[str, Any]:
    """The models that may be named."""
    rows = [{"id": name, "object": "model", "created": 0, "owned_by": USUAL} for name in names]
    return {"object": "list", "data": rows}


def _id(build_id: str) -> str:
    return f"chatcmpl-{build_id.removeprefix('ctx-')}"


def _added(done: Completion) -> dict[str, Any]:
    return {"build_id": done.build_id, "citations": done.citations, "degradations": done.degradations}
