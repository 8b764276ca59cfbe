"""The index of `examples/index_backend` keeps the contract that the page on extending describes."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from contexture.ports import Index
from contexture.testing.index import VECTORS, IndexConformance

EXAMPLE = Path(__file__).parents[2] / "examples" / "index_backend"


class TestPlainIndex(IndexConformance):
    """An index in one file."""

    @pytest.fixture
    def index(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
        """A new one for every test."""
        monkeypatch.syspath_prepend(str(EXAMPLE))
        module = sys.modules.get("plain_index") or import_module("plain_index")
        return module.PlainIndex(tmp_path / "plain.sqlite", VECTORS)
