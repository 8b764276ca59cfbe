"""Embedders behind an HTTP API, through LiteLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from contexture.adapters.embedders import encoding
from contexture.errors import ContractError, InvalidRequest, SourceTimeout, SourceUnavailable
from contexture.types import Matrix, Vector

try:
    _litellm: Any = import_module("litellm")
    _openai: Any = import_module("openai")
except ImportError as missing:
    raise ImportError('LiteLLMEmbedder needs litellm: pip install "contexture-ai[litellm]"') from missing

# On failures LiteLLM prints advice to standard output, which is reserved for the program's own output.
_litellm.suppress_debug_info = True

# Vendors refuse empty input, but an empty text needs a vector too.
EMPTY_TEXT_STAND_IN = "."


class LiteLLMEmbedder:
    """A hosted model by its LiteLLM name, such as `openai/text-embedding-3-small`.

    Vendors do not guarantee bit-identical vectors for equal texts; wrap it in a `CachedEmbedder` for that. Failures
    raise `SourceError`, at the latest after `timeout` seconds per batch.
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
        calibration: encoding.Calibration = encoding.DEFAULT_CALIBRATION,
    ) -> None:
        self._model = model
        self._dimensions = dimensions
        self._api_base = api_base
        self._api_key = api_key
        self._timeout = timeout
        self._batch = batch
        self._calibration = calibration

    @classmethod
    def from_name(cls, model: str) -> LiteLLMEmbedder:
        """Embedder from `MODEL` or `MODEL@DIMENSIONS`; the dimensions are optional if LiteLLM knows them.

        Raises `InvalidRequest` otherwise.
        """
        name, _, size = model.partition("@")
        if size and not size.isdecimal():
            raise InvalidRequest(f"{size!r} in {model!r} is not a number of dimensions")
        dimensions = int(size) if size else _litellm.model_cost.get(name, {}).get("output_vector_size")
        if not dimensions:
            raise InvalidRequest(f"LiteLLM does not know the size of {name!r}; write it as '{name}@1024'")
        return cls(name, dimensions=dimensions)

    @property
    def name(self) -> str:
        """Model name and dimensions, with the prefix `litellm-`."""
        return f"litellm-{self._model}-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit vector per text, in order."""
        rows = np.empty((len(texts), self._dimensions), np.float32)
        for first in range(0, len(texts), self._batch):
            some = [
                encoding.replace_lone_surrogates(text) if text.strip() else EMPTY_TEXT_STAND_IN
                for text in texts[first : first + self._batch]
            ]
            rows[first : first + len(some)] = await self._request(some)
        return rows

    def calibrate(self, cosine: Vector) -> Vector:
        """Map cosines to similarities with the given calibration."""
        return self._calibration(cosine)

    async def _request(self, texts: list[str]) -> Matrix:
        try:
            # The vendor's client retries on its own; this timeout covers all attempts.
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
        return self._unit_rows(sorted(answer.data, key=lambda item: item["index"]), len(texts))

    def _unit_rows(self, items: Sequence[Any], expected: int) -> Matrix:
        vectors = [np.asarray(item["embedding"], np.float32) for item in items]
        if [(self._dimensions,)] * expected != [vector.shape for vector in vectors]:
            raise ContractError(
                f"{self._model!r} was asked for {expected} vectors of {self._dimensions} numbers "
                f"and sent {len(vectors)} of {len(vectors[0]) if vectors else 0}"
            )
        return np.stack([encoding.normalize_vector(vector) for vector in vectors])
