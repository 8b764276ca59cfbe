"""The names of `contexture.wiring`, which are imported when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from contexture import wiring


@pytest.mark.parametrize("name", wiring.__all__)
def test_every_name_is_found_where_it_is_said_to_be(name):
    """And is listed."""
    assert hasattr(wiring, name)
    assert name in dir(wiring)


def test_an_unknown_name_is_refused():
    """As by any module."""
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = wiring.nothing


COUNTING = [f"contexture.adapters.{name}" for name in ("byte_pairs", "installed_packages", "token_counters")]


@pytest.mark.parametrize(
    ("statement", "loaded"),
    [
        ("import contexture.engine", ["contexture.adapters"]),
        (
            "from contexture.wiring import counter_for",
            [
                "contexture.adapters",
                *(f"contexture.adapters.{name}" for name in ("byte_pairs", "installed_packages", "token_counters")),
            ],
        ),
    ],
)
def test_one_name_loads_no_other_adapter(statement, loaded):
    """Nor does the engine, before it is opened."""
    listing = "import sys; print(*sorted(name for name in sys.modules if name.startswith('contexture.adapters')))"
    done = subprocess.run([sys.executable, "-c", f"{statement}; {listing}"], capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) <= set(loaded)
