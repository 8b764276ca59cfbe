"""Any hosted model, through LiteLLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import Any

from contexture.errors import SourceTimeout, SourceUnavailable
from contexture.types import Message

try:
    _litellm: Any = import_module("litellm")
    _openai: Any = import_module("openai")
except ImportError as missing:
    raise ImportError('LiteLLMChat needs litellm: pip install "contexture[litellm]"') from missing

# On failures LiteLLM prints advice to standard output, which belongs to the program.
_litellm.suppress_debug_info = True
_litellm.telemetry = False

_CENTS_A_MILLION = 100 * 1_000_000


class LiteLLMChat:
    """A model by its LiteLLM name, such as `gpt-5`, `anthropic/claude-sonnet-4-5` or `gemini/gemini-2.5-pro`.

    Keys and addresses are read by LiteLLM from the variables of each vendor, unless they are given here. Whatever
    goes wrong, before the first piece or between two, is a `SourceError`; a vendor that is silent for `timeout`
    seconds is a `SourceTimeout`. Nothing is retried: the next model in line is the better answer.
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
        """The model's name, marked as reached through LiteLLM."""
        return f"litellm:{self._model}"

    @property
    def price(self) -> tuple[float, float] | None:
        """Cents for a million tokens, read and written, on the list that LiteLLM ships; None when it is not there."""
        costs: dict[str, dict[str, float]] = _litellm.model_cost
        listed = costs.get(self._model) or costs.get(self._model.partition("/")[2]) or dict[str, float]()
        read, written = listed.get("input_cost_per_token"), listed.get("output_cost_per_token")
        return None if read is None or written is None else (read * _CENTS_A_MILLION, written * _CENTS_A_MILLION)

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """The whole answer."""
        async with self._patience():
            answer = await self._ask(messages, max_tokens, stream=False)
        text = str(answer.choices[0].message.content or "") if answer.choices else ""
        if not text:
            raise self._nothing()
        return text

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """The answer in the vendor's pieces."""
        async with self._patience():
            answer = await self._ask(messages, max_tokens, stream=True)
        heard = False
        async with aclosing(answer):  # whoever stops listening hangs up
            pieces = aiter(answer)
            while True:
                async with self._patience():
                    chunk: Any = await anext(pieces, None)
                if chunk is None:
                    break
                if chunk.choices and (piece := chunk.choices[0].delta.content):
                    heard = True
                    yield str(piece)
        if not heard:
            raise self._nothing()

    async def _ask(self, messages: Sequence[Message], max_tokens: int, *, stream: bool) -> Any:
        return await _litellm.acompletion(
            model=self._model,
            messages=[dict(message) for message in messages],
            max_tokens=max_tokens,
            stream=stream,
            api_base=self._api_base,
            api_key=self._api_key,
            timeout=2 * self._timeout,  # ours strikes first, and is told apart from a dead line
            num_retries=0,
            max_retries=0,
            drop_params=True,
        )

    def _nothing(self) -> SourceUnavailable:
        return SourceUnavailable(f"{self._model!r} sent an empty answer")

    @asynccontextmanager
    async def _patience(self) -> AsyncGenerator[None]:
        """Vendor errors as ours, the latest after `timeout` seconds."""
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except (TimeoutError, _openai.APITimeoutError) as failure:
            raise SourceTimeout(f"{self._model!r} did not answer within {self._timeout} s") from failure
        except _openai.OpenAIError as failure:
            raise SourceUnavailable(f"{self._model!r} refused: {failure}") from failure
