"""Child processes of tests."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]


def child_environment() -> dict[str, str]:
    """The environment for a program that imports `support`: ours, with the folder of tests on its path."""
    inherited = os.environ.get("PYTHONPATH", "")  # noqa: TID251 - handed on
    path = os.pathsep.join(filter(None, (inherited, str(TESTS))))
    return {**os.environ, "PYTHONPATH": path}  # noqa: TID251 - handed on
