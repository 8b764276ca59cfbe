"""The contract of a session store as a test class: subclass it, provide a `store` fixture, inherit the tests.

One store may serve all tests, because every test writes as a tenant of its own.

class TestMySessions(SessionStoreConformance):
    @pytest.fixture
    def store(self):
        return MySessions(...)
"""
# ruff: noqa: S101, PLR2004, SIM300 - a conformance suite asserts

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from contexture.conversation import SessionEvent
from contexture.ports import SessionStore
from contexture.testing.doubles import NOON
from contexture.types import Scope


def make_event(name: str, content: str = "hello") -> SessionEvent:
    """A message of the user as an event."""
    return SessionEvent(id=name, message={"role": "user", "content": content}, time=NOON)


class SessionStoreConformance:
    """Everything a session store promises."""

    @pytest.fixture
    def scope(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))

    async def test_events_come_back_as_they_were_written(self, store: SessionStore, scope: Scope) -> None:
        """Message, time and metadata are unchanged, and positions count from 1."""
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        written = [
            replace(
                make_event("a", "Привет ё \U0001f600 \x00"), metadata={"n": 1, "deep": {"list": [None, 1.5, True]}}
            ),
            SessionEvent(id="b", message={"role": "assistant", "content": None, "tool_calls": [call]}, time=NOON),
        ]

        assert await store.append(scope, "s", written) == 2
        assert [replace(each, position=at) for at, each in enumerate(written, start=1)] == list(
            await store.list_events(scope, "s")
        )

    async def test_the_newest_events_come_oldest_first(self, store: SessionStore, scope: Scope) -> None:
        """A limit keeps the end of a session, in its order."""
        await store.append(scope, "s", [make_event(str(number)) for number in range(30)])

        assert ["28", "29"] == [each.id for each in await store.list_events(scope, "s", limit=2)]
        assert [str(number) for number in range(10, 30)] == [each.id for each in await store.list_events(scope, "s")]
        assert len(await store.list_events(scope, "s", limit=10**30)) == 30

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_limit_of_zero_or_less_returns_nothing(self, store: SessionStore, scope: Scope, limit: int) -> None:
        """A limit of zero or less returns no events and no sessions, not all of them."""
        await store.append(scope, "s", [make_event("a")])

        assert [] == list(await store.list_events(scope, "s", limit=limit))
        assert [] == list(await store.sessions(scope, limit=limit))

    async def test_a_known_event_is_not_appended_again(self, store: SessionStore, scope: Scope) -> None:
        """Appending again changes nothing, also when new events stand beside the known one or it comes twice."""
        await store.append(scope, "s", [make_event("a", "first")])

        assert await store.append(scope, "s", [make_event("a", "second")]) == 1
        assert (
            await store.append(
                scope, "s", [make_event("b"), make_event("a"), make_event("b", "again"), make_event("c")]
            )
            == 3
        )
        found = await store.list_events(scope, "s")
        assert [("a", 1, "first"), ("b", 2, "hello"), ("c", 3, "hello")] == [
            (each.id, each.position, each.message["content"]) for each in found
        ]

    async def test_one_id_may_be_used_in_two_sessions(self, store: SessionStore, scope: Scope) -> None:
        """An event is known by its session and its id."""
        await store.append(scope, "s", [make_event("a", "one")])
        await store.append(scope, "t", [make_event("a", "two")])

        assert "two" == (await store.list_events(scope, "t"))[0].message["content"]

    async def test_other_peoples_sessions_are_empty(self, store: SessionStore, scope: Scope) -> None:
        """Neither another tenant nor another user of the tenant sees a session, or writes into it."""
        await store.append(scope, "s", [make_event("a")])
        for other in (replace(scope, user="boris"), replace(scope, tenant=uuid4().hex)):
            assert [] == list(await store.list_events(other, "s"))
            assert [] == list(await store.sessions(other))
            assert await store.append(other, "s", [make_event("x"), make_event("y")]) == 2

        assert ["a"] == [each.id for each in await store.list_events(scope, "s")]

    async def test_groups_do_not_matter(self, store: SessionStore, scope: Scope) -> None:
        """A user who joins or leaves a group keeps their sessions."""
        await store.append(scope, "s", [make_event("a")])

        assert ["s"] == list(await store.sessions(replace(scope, groups=())))

    async def test_the_session_last_written_to_comes_first(self, store: SessionStore, scope: Scope) -> None:
        """The order is that of the last write; an append that adds nothing is no write."""
        for name in ("s", "t", "u"):
            await store.append(scope, name, [make_event("a")])
        await store.append(scope, "s", [make_event("b")])
        await store.append(scope, "t", [make_event("a")])
        await store.append(scope, "v", [])

        assert ["s", "u", "t"] == list(await store.sessions(scope))
        assert ["s"] == list(await store.sessions(scope, limit=1))

    async def test_concurrent_appends_lose_nothing(self, store: SessionStore, scope: Scope) -> None:
        """Positions stay gapless, and the events of one append stay together and in order."""
        pairs = [[make_event(f"{number}a"), make_event(f"{number}b")] for number in range(40)]
        await asyncio.gather(*(store.append(scope, "s", pair) for pair in pairs))

        found = await store.list_events(scope, "s", limit=100)
        assert list(range(1, 81)) == [each.position for each in found]
        assert {(f"{number}a", f"{number}b") for number in range(40)} == {
            (found[at].id, found[at + 1].id) for at in range(0, 80, 2)
        }
