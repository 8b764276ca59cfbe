"""The shipped embedder contract, run over the embedders that need no extra."""

from __future__ import annotations

import pytest

from contexture.adapters.embedders.granite import Granite
from contexture.adapters.embedders.minilm import MiniLM
from contexture.adapters.embedders.use import MultilingualUSE
from contexture.testing.embedders import EmbedderConformance


class TestGranite(EmbedderConformance):
    """The default English embedder keeps the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def embedder(cls) -> Granite:
        """One model for all checks."""
        return Granite()


class TestMiniLM(EmbedderConformance):
    """The other English embedder keeps the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def embedder(cls) -> MiniLM:
        """One model for all checks."""
        return MiniLM()


class TestMultilingualUSE(EmbedderConformance):
    """The multilingual embedder keeps the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def embedder(cls) -> MultilingualUSE:
        """One model for all checks."""
        return MultilingualUSE()
