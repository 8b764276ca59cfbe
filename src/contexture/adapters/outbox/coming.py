"""Whose memories are on their way and were not tried yet, so that whoever recalls them can wait."""

from __future__ import annotations

import asyncio

from contexture.types import Scope

Owner = tuple[str, str]


class Coming:
    """Numbers what is put, and knows up to which number everything was tried.

    What an earlier process left may be anyone's: until it was tried, it is on its way to everyone.
    """

    def __init__(self) -> None:
        self._count = 0
        self._tried = -1
        self._last: dict[Owner, int] = {}
        self._more_tried = asyncio.Event()

    @property
    def count(self) -> int:
        """How often something was put here."""
        return self._count

    def put(self, scope: Scope) -> None:
        """Something of this scope is on its way."""
        self._count += 1
        self._last[_owner(scope)] = self._count

    def tried(self, upto: int) -> None:
        """Everything that was put up to this number was taken or refused."""
        self._tried = max(self._tried, upto)
        self._last = {owner: last for owner, last in self._last.items() if last > self._tried}
        self._more_tried.set()
        self._more_tried.clear()

    def before(self, scope: Scope) -> int:
        """How many puts, whoever's, are to be tried until those of this scope are."""
        return max(0, self._last.get(_owner(scope), 0) - self._tried)

    async def arrived(self, scope: Scope) -> None:
        """Return when what was put so far of this scope has been tried."""
        last = self._last.get(_owner(scope), 0)
        while self._tried < last:
            await self._more_tried.wait()


def _owner(scope: Scope) -> Owner:
    return scope.tenant, scope.user
