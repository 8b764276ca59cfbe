"""The one place that talks to onnxruntime, which ships no types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Session(Protocol):
    """A loaded model; several threads may run it at once."""

    def run(
        self, outputs: None, feed: Mapping[str, npt.NDArray[np.int64] | npt.NDArray[np.float32]]
    ) -> Sequence[npt.NDArray[np.float32]]:
        """Every output of the model for these inputs."""
        ...


def session(model: Path | bytes, *, threads: int) -> Session:
    """A model, from a file or from a file's content, with this many threads for one run and nothing on stderr."""
    runtime: Any = import_module("onnxruntime")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Idle threads that spin would take the cores from the index.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(
        model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
    )
