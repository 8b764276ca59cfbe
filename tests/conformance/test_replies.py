"""Replies in SQLite keep the contract."""

from __future__ import annotations

import stat

import pytest

from contexture.adapters.conversation.sqlite import SqliteReplies
from contexture.errors import InvalidRequest
from contexture.testing.replies import COMPLETE, ReplyStoreConformance
from contexture.types import Scope


class TestSqliteReplies(ReplyStoreConformance):
    """In a file of its own."""

    @pytest.fixture
    def store(self, new_folder):
        """An empty one."""
        found = SqliteReplies(new_folder() / "replies.sqlite", days=7)
        yield found
        found.close()


async def test_replies_outlive_the_process_and_are_private(new_folder):
    """Opened again, the file has them; only its owner may read it."""
    path = new_folder() / "replies.sqlite"
    first = SqliteReplies(path, days=7)
    await first.put(Scope.local(), COMPLETE)
    first.close()
    second = SqliteReplies(path, days=7)
    found = await second.get(Scope.local(), COMPLETE.message_id)
    second.close()

    assert COMPLETE == found
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


async def test_an_id_that_cannot_be_stored_is_refused(new_folder):
    """Half a character has no bytes."""
    store = SqliteReplies(new_folder() / "replies.sqlite", days=7)
    with pytest.raises(InvalidRequest, match="message id"):
        await store.get(Scope.local(), "\ud800")
    store.close()
