"""Embedders behind an HTTP API, through LiteLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from contexture.adapters.embedders.calibration import UNFITTED, Calibration, unit
from contexture.adapters.embedders.texts import encodable
from contexture.errors import ContractError, InvalidRequest, SourceTimeout, SourceUnavailable
from contexture.types import Matrix, Vector

try:
    _litellm: Any = import_module("litellm")
    _openai: Any = import_module("openai")
except ImportError as missing:
    raise ImportError('LiteLLMEmbedder needs litellm: pip install "contexture[litellm]"') from missing

# On failures LiteLLM prints advice to standard output, which belongs to the program.
_litellm.suppress_debug_info = True

# Vendors refuse empty input, and the empty text has a row too.
BLANK = "."


class LiteLLMEmbedder:
    """A hosted model by its LiteLLM name, such as `openai/text-embedding-3-small`.

    Vendors do not promise equal bits for equal texts; `CachedEmbedder` in front of this one
    does. Failures surface as `SourceError`, at the latest after `timeout` seconds for a batch.
    """

    def __init__(
        self,
        model: str,
        *,
        dimensions: int,
        api_base: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        batch: int = 96,
        calibration: Calibration = UNFITTED,
    ) -> None:
        self._model = model
        self._dimensions = dimensions
        self._api_base = api_base
        self._api_key = api_key
        self._timeout = timeout
        self._batch = batch
        self._calibration = calibration

    @classmethod
    def named(cls, name: str) -> LiteLLMEmbedder:
        """The embedder `MODEL` or `MODEL@DIMENSIONS`; the size may be left out when LiteLLM knows it."""
        model, _, size = name.partition("@")
        if size and not size.isdecimal():
            raise InvalidRequest(f"{size!r} in {name!r} is not a number of dimensions")
        dimensions = int(size) if size else _litellm.model_cost.get(model, {}).get("output_vector_size")
        if not dimensions:
            raise InvalidRequest(f"LiteLLM does not know the size of {model!r}; write it as '{model}@1024'")
        return cls(model, dimensions=dimensions)

    @property
    def name(self) -> str:
        """The model's name, marked as reached through LiteLLM."""
        return f"litellm-{self._model}-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit row per text, in order."""
        rows = np.empty((len(texts), self._dimensions), np.float32)
        for first in range(0, len(texts), self._batch):
            some = [encodable(text) if text.strip() else BLANK for text in texts[first : first + self._batch]]
            rows[first : first + len(some)] = await self._request(some)
        return rows

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as the given calibration maps them."""
        return self._calibration(cosine)

    async def _request(self, texts: list[str]) -> Matrix:
        try:
            # The vendor's client retries by itself; the deadline covers all of its attempts.
            async with asyncio.timeout(self._timeout):
                answer: Any = await _litellm.aembedding(
                    model=self._model,
                    input=texts,
                    api_base=self._api_base,
                    api_key=self._api_key,
                    timeout=self._timeout,
                    encoding_format="float",
                )
        except (TimeoutError, _openai.APITimeoutError) as failure:
            raise SourceTimeout(f"{self._model!r} did not answer within {self._timeout} s") from failure
        except _openai.OpenAIError as failure:
            raise SourceUnavailable(f"{self._model!r} refused: {failure}") from failure
        return self._rows(sorted(answer.data, key=lambda item: item["index"]), len(texts))

    def _rows(self, items: Sequence[Any], expected: int) -> Matrix:
        vectors = [np.asarray(item["embedding"], np.float32) for item in items]
        if [(self._dimensions,)] * expected != [vector.shape for vector in vectors]:
            raise ContractError(
                f"{self._model!r} was asked for {expected} vectors of {self._dimensions} numbers "
                f"and sent {len(vectors)} of {len(vectors[0]) if vectors else 0}"
            )
        return np.stack([unit(vector) for vector in vectors])
