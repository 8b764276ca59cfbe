"""Loads models of fastembed's catalogues, from its hub cache or a local folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from contexture.errors import SourceUnavailable, UnknownAdapter

try:
    _fastembed: Any = import_module("fastembed")
    _rerank: Any = import_module("fastembed.rerank.cross_encoder")
    _runtime: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
except ImportError as missing:
    raise ImportError('fastembed models need fastembed: pip install "contexture[fastembed]"') from missing

EMBEDDERS: Any = _fastembed.TextEmbedding
RERANKERS: Any = _rerank.TextCrossEncoder
PAGE_MODELS: Any = _fastembed.LateInteractionMultimodalEmbedding

# onnxruntime gives its errors no common base of their own.
FAILURES = (ValueError, OSError, _runtime.NoSuchFile, _runtime.InvalidProtobuf, _runtime.InvalidGraph, _runtime.Fail)


def entry(catalogue: Any, model: str) -> dict[str, Any]:
    """What the catalogue says about a model; an unknown one is refused with the known names."""
    known: dict[str, dict[str, Any]] = {row["model"].lower(): row for row in catalogue.list_supported_models()}
    if model.lower() not in known:
        raise UnknownAdapter(f"fastembed has no model {model!r}; it has {', '.join(sorted(known))}")
    return known[model.lower()]


def load(catalogue: Any, model: str, *, cache_dir: Path | None, path: Path | None, threads: int) -> Any:
    """The running model, from `path`, else from `cache_dir`, else downloaded into it."""
    if path is not None and not path.is_dir():
        raise SourceUnavailable(f"there is no folder {path} to load {model!r} from")
    try:
        return catalogue(
            model,
            cache_dir=None if cache_dir is None else str(cache_dir),
            threads=threads,
            specific_model_path=None if path is None else str(path),
        )
    except FAILURES as failure:
        raise SourceUnavailable(f"fastembed could not load {model!r}: {failure}") from failure
