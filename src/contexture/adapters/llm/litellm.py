"""Hosted chat models through LiteLLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import Any

from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable
from contexture.types import Json, Message

try:
    _litellm: Any = import_module("litellm")
    _openai: Any = import_module("openai")
except ImportError as missing:
    raise ImportError('LiteLLMChat needs litellm: pip install "contexture-ai[litellm]"') from missing

# On failures LiteLLM prints advice to standard output, which is reserved for the program's own output.
_litellm.suppress_debug_info = True
_litellm.telemetry = False

_CENTS_PER_MILLION_TOKENS = 100 * 1_000_000
_MAX_REFUSAL = 500  # characters of a vendor's refusal that the caller is told
_KNOWN_OPTIONS = frozenset(
    """temperature top_p stop presence_penalty frequency_penalty logit_bias user response_format seed tools tool_choice
    parallel_tool_calls logprobs top_logprobs reasoning_effort verbosity service_tier modalities prediction audio
    functions function_call safety_identifier prompt_cache_key web_search_options thinking""".split()
)
"""Options that LiteLLM translates for each vendor. All others go into the body of the request and nowhere else: an
argument such as `api_base` would send the operator's key to an address that the caller chooses."""


class LiteLLMChat:
    """A model by its LiteLLM name, such as `gpt-5`, `anthropic/claude-sonnet-4-5` or `gemini/gemini-2.5-pro`.

    LiteLLM reads keys and URLs from the environment variables of each vendor, unless they are given here. Failures,
    also in the middle of a stream, raise `SourceError`; no data for `timeout` seconds raises `SourceTimeout`. Nothing
    is retried, because the caller falls back to the next model.
    """

    def __init__(
        self, model: str, *, api_base: str | None = None, api_key: str | None = None, timeout: float = 60.0
    ) -> None:
        self._model = model
        self._api_base = api_base
        self._api_key = api_key
        self._timeout = timeout

    @property
    def name(self) -> str:
        """Model name with the prefix `litellm:`."""
        return f"litellm:{self._model}"

    @property
    def price(self) -> tuple[float, float] | None:
        """Cents per million input and output tokens, from LiteLLM's price list; None for an unlisted model."""
        costs: dict[str, dict[str, float]] = _litellm.model_cost
        listed = costs.get(self._model) or costs.get(self._model.partition("/")[2]) or dict[str, float]()
        read, written = listed.get("input_cost_per_token"), listed.get("output_cost_per_token")
        return (
            None
            if read is None or written is None
            else (read * _CENTS_PER_MILLION_TOKENS, written * _CENTS_PER_MILLION_TOKENS)
        )

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return the whole answer; raises `SourceUnavailable` for an empty one."""
        async with self._translate_errors():
            answer = await self._ask(messages, max_tokens, stream=False)
        text = str(answer.choices[0].message.content or "") if answer.choices else ""
        if not text:
            raise self._empty_answer_error()
        return text

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Yield the answer in the vendor's chunks; raises `SourceUnavailable` for an empty one."""
        async with self._translate_errors():
            answer = await self._ask(messages, max_tokens, stream=True)
        heard = False
        async with aclosing(answer):  # closes the connection when the consumer stops
            pieces = aiter(answer)
            while True:
                async with self._translate_errors():
                    chunk: Any = await anext(pieces, None)
                if chunk is None:
                    break
                if chunk.choices and (piece := chunk.choices[0].delta.content):
                    heard = True
                    yield str(piece)
        if not heard:
            raise self._empty_answer_error()

    async def complete_choice(
        self, messages: Sequence[Message], *, max_tokens: int | None, options: Mapping[str, Json]
    ) -> dict[str, Any]:
        """Return the vendor's answer with its tool calls; raises `InvalidRequest` for a request that it refuses."""
        async with self._translate_errors(refusals=True):
            answer = await self._ask(messages, max_tokens, stream=False, options=options)
        if not answer.choices:
            raise self._empty_answer_error()
        return answer.choices[0].model_dump(exclude_none=True)

    async def stream_choices(
        self, messages: Sequence[Message], *, max_tokens: int | None, options: Mapping[str, Json]
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the vendor's chunks; raises `InvalidRequest` for a request that it refuses."""
        async with self._translate_errors(refusals=True):
            answer = await self._ask(messages, max_tokens, stream=True, options=options)
        async with aclosing(answer):
            pieces = aiter(answer)
            while True:
                async with self._translate_errors():
                    chunk: Any = await anext(pieces, None)
                if chunk is None:
                    return
                if chunk.choices:
                    yield chunk.choices[0].model_dump(exclude_none=True)

    async def _ask(
        self,
        messages: Sequence[Message],
        max_tokens: int | None,
        *,
        stream: bool,
        options: Mapping[str, Json] | None = None,
    ) -> Any:
        known = {name: value for name, value in (options or {}).items() if name in _KNOWN_OPTIONS}
        other = {name: value for name, value in (options or {}).items() if name not in _KNOWN_OPTIONS}
        return await _litellm.acompletion(
            **known,
            **({"extra_body": other} if other else {}),
            model=self._model,
            messages=[dict(message) for message in messages],
            max_tokens=max_tokens,
            stream=stream,
            api_base=self._api_base,
            api_key=self._api_key,
            timeout=2 * self._timeout,  # our timeout fires first and raises `SourceTimeout`
            num_retries=0,
            max_retries=0,
            drop_params=True,
        )

    def _empty_answer_error(self) -> SourceUnavailable:
        return SourceUnavailable(f"{self._model!r} sent an empty answer")

    @asynccontextmanager
    async def _translate_errors(self, *, refusals: bool = False) -> AsyncGenerator[None]:
        """Raise vendor errors as `SourceError`, and `SourceTimeout` after `timeout` seconds.

        With `refusals`, a request that the vendor refuses as wrong raises `InvalidRequest`.
        """
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except (TimeoutError, _openai.APITimeoutError) as failure:
            raise SourceTimeout(f"{self._model!r} did not answer within {self._timeout} s") from failure
        except _openai.OpenAIError as failure:
            if refusals and isinstance(failure, (_openai.BadRequestError, _openai.UnprocessableEntityError)):
                raise InvalidRequest(f"{self._model!r} refused the request: {failure}"[:_MAX_REFUSAL]) from failure
            raise SourceUnavailable(f"{self._model!r} refused: {failure}") from failure
