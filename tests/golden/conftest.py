"""`pytest tests/golden --update-golden` writes the golden files anew; review the difference before committing it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch."""
    parser.addoption("--update-golden", action="store_true", help="write the golden contexts anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written instead of compared; never where the switch was not declared."""
    return bool(request.config.getoption("--update-golden", default=False))


@pytest.fixture(
    scope="module", params=["folder", "postgres", pytest.param("qdrant", marks=pytest.mark.needs("qdrant"))]
)
def store(request: pytest.FixtureRequest) -> str:
    """The address of an empty store: none for one in a folder, then that of a database, then that of a Qdrant."""
    if request.param == "qdrant":
        return request.getfixturevalue("qdrant_place")
    return "" if request.param == "folder" else request.getfixturevalue("new_url")()
