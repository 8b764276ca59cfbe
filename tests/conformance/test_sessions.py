"""The shipped contract of session stores, run over the one in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contexture.adapters.conversation.sqlite import SqliteSessions
from contexture.testing.sessions import SessionStoreConformance


class TestSqliteSessions(SessionStoreConformance):
    """Sessions in SQLite keep the contract."""

    @pytest.fixture
    def store(self, new_folder: Callable[[], Path]) -> Iterator[SqliteSessions]:
        """A store in a folder of its own."""
        opened = SqliteSessions(new_folder() / "sessions.sqlite")
        yield opened
        opened.close()
