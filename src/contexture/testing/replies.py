"""The contract of a reply store as a test class: subclass it, provide a `store` fixture, inherit the tests.

One store may serve all tests, because every test writes as a tenant of its own.
"""
# ruff: noqa: S101 - a conformance suite asserts

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from contexture.conversation import ReplyState, StoredReply
from contexture.ports import ReplyStore
from contexture.testing.doubles import NOON
from contexture.types import Scope

ACCEPTED = StoredReply(message_id="m ж\0", session_id="s", state=ReplyState.ACCEPTED, time=NOON)
FAILED = replace(ACCEPTED, state=ReplyState.FAILED, body=b'{"code": "UNAVAILABLE"}')
COMPLETE = replace(ACCEPTED, state=ReplyState.COMPLETE, body='{"reply": "Да \\u0000"}'.encode())


class ReplyStoreConformance:
    """Everything a reply store promises."""

    @pytest.fixture
    def scope(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna")

    async def test_an_unknown_reply_is_none(self, store: ReplyStore, scope: Scope) -> None:
        """`get` returns None."""
        assert await store.get(scope, "unknown") is None

    @pytest.mark.parametrize("reply", [ACCEPTED, FAILED, COMPLETE])
    async def test_a_reply_comes_back_as_it_was_put(self, store: ReplyStore, scope: Scope, reply: StoredReply) -> None:
        """Its state, time, session and bytes are unchanged, and `put` returns it."""
        assert await store.put(scope, reply) == reply
        assert await store.get(scope, reply.message_id) == reply

    @pytest.mark.parametrize("before", [ACCEPTED, FAILED])
    @pytest.mark.parametrize("after", [ACCEPTED, FAILED, COMPLETE])
    async def test_an_incomplete_reply_is_replaced(
        self, store: ReplyStore, scope: Scope, before: StoredReply, after: StoredReply
    ) -> None:
        """A message may be accepted again, fail again, or be answered after all."""
        later = replace(after, time=NOON + timedelta(hours=1))
        await store.put(scope, before)

        assert await store.put(scope, later) == later
        assert await store.get(scope, later.message_id) == later

    @pytest.mark.parametrize("after", [ACCEPTED, FAILED, replace(COMPLETE, body=b"{}")])
    async def test_a_complete_reply_is_not_replaced(self, store: ReplyStore, scope: Scope, after: StoredReply) -> None:
        """The first complete reply is kept, and `put` returns it."""
        await store.put(scope, COMPLETE)

        assert await store.put(scope, after) == COMPLETE
        assert await store.get(scope, COMPLETE.message_id) == COMPLETE

    async def test_of_concurrent_puts_one_wins(self, store: ReplyStore, scope: Scope) -> None:
        """All of them return the same reply."""
        made = [replace(COMPLETE, body=f'{{"n": {number}}}'.encode()) for number in range(8)]
        returned = await asyncio.gather(*(store.put(scope, each) for each in made))

        assert all(each == returned[0] for each in returned)
        assert await store.get(scope, COMPLETE.message_id) == returned[0]

    async def test_a_reply_belongs_to_its_user_and_tenant(self, store: ReplyStore, scope: Scope) -> None:
        """Other users and tenants neither see nor replace it; groups make no difference."""
        others = replace(scope, user="boris"), replace(scope, tenant=uuid4().hex)
        await store.put(scope, COMPLETE)
        for other in others:
            assert await store.get(other, COMPLETE.message_id) is None
            assert await store.put(other, FAILED) == FAILED

        assert await store.get(replace(scope, groups=("sales",)), COMPLETE.message_id) == COMPLETE
