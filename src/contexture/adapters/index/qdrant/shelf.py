"""The collections of a store in Qdrant, kept in step with the truth: what is missing is sent before it is asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from contexture.adapters.index.classes import Access
from contexture.adapters.index.engine import Draft
from contexture.adapters.index.filters import payload_of
from contexture.adapters.index.over_truth import IndexOverTruth
from contexture.adapters.index.part import record_of
from contexture.adapters.index.qdrant.box import NOTHING, Box, Tenants
from contexture.adapters.index.qdrant.client import Server
from contexture.adapters.index.qdrant.points import tenant_key
from contexture.adapters.index.qdrant.sight import Boundary, RemoteSight
from contexture.adapters.index.qdrant.where import server_filter
from contexture.adapters.index.shelf import EmbeddedOptions
from contexture.adapters.index.source import Reading
from contexture.adapters.index.truth import Change, Row, State
from contexture.errors import SourceError, SourceUnavailable
from contexture.types import FieldType, Filter

_I = TypeVar("_I", bound=IndexOverTruth)
Turn = Callable[[], AbstractContextManager[object]]
"""Holds as long as something is sent, by one thread of one process at a time, and lets it read the newest truth."""


@dataclass(frozen=True, slots=True)
class RemotePart:
    """One collection, found in Qdrant."""

    box: Box
    truth: Reading
    exact_limit: int

    def lacking(self, where: Filter | None) -> set[str]:
        """Nothing: Qdrant has every field."""
        del where
        return set()

    def sight(self, access: Access, where: Filter | None) -> RemoteSight:
        """What these permissions and this filter let through; exact where the scope may read few enough."""
        tenant = tenant_key(access.tenant)
        exact = access.passages <= self.exact_limit
        boundary = Boundary(server_filter(access, where), access.allowed, tenant, exact)
        return RemoteSight(self.box, boundary, self.truth.stored_at)


class RemoteShelf:
    """A box in Qdrant for each collection.

    `store` tells it from every other on the same server. A write that Qdrant could not take is in the truth all the
    same; its collection is behind until Qdrant has it, and nothing is found in a collection that is behind.
    """

    def __init__(
        self, server: Server, store: str, truth: Reading, options: EmbeddedOptions, turn: Turn | None = None
    ) -> None:
        self._server = server
        self._store = store
        self._truth = truth
        self._options = options
        self._turn: Turn = turn or _alone()
        self._boxes: dict[str, Box] = {}
        self._keys: dict[int, str] = {}
        self.columns = truth.columns()
        self._adding = threading.Lock()
        # How often it was doubted that Qdrant has everything, and which of these doubts was the last to be removed.
        self._doubts: Counter[str] = Counter()
        self._settled: dict[str, int] = {}
        self._trouble = ""
        self._failures = 0
        self._resting = 0.0

    @property
    def ailing(self) -> str:
        """How Qdrant failed when it was last needed; empty when it did not."""
        return self._trouble or next((box.trouble for box in list(self._boxes.values()) if box.trouble), "")

    def part(self, name: str) -> RemotePart:
        """What finds in a collection; Qdrant has every write to it then."""
        self.settle(name)
        return RemotePart(self._boxes[name], self._truth, self._options.exact_limit)

    def spaces(self, name: str, access: Access) -> None:
        """Unknown: to ask Qdrant would take longer than to embed for nothing."""
        del name, access

    def settle(self, name: str) -> None:
        """Let Qdrant have every write to a collection that it has not seen."""
        if not self._behind(name):
            return
        failures = self._failures
        with self._server.trying(), self._turn():
            if self._failures != failures:  # while this one waited; a line of others would wait as long again
                raise SourceUnavailable(f"{self._server.name} failed a moment ago")
            if self._behind(name):
                doubt = self._doubts[name]
                with self._noting(name):
                    self._send(name)
                self._settled[name] = doubt

    def attempt(self, names: Iterable[str]) -> None:
        """The same of some collections, if Qdrant can be reached now; who searches will see to the rest."""
        with suppress(SourceError):
            for name in names if monotonic() >= self._resting else ():
                self.settle(name)

    def doubt(self, names: Iterable[str]) -> None:
        """Somebody wrote to these collections: make sure that Qdrant has it before it is asked."""
        self._doubts.update(names)

    def add(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Take a new collection, or new fields of a known one; Qdrant is told when it is needed."""
        with self._adding:  # those who follow and those who send may both come upon new ones
            known = self.columns.get(name)
            wanted = {**(known or {}), **columns}
            if wanted != known:
                self.columns[name] = wanted
                self.doubt([name])

    def draft(self, name: str, added: Sequence[Row]) -> Draft:
        """Nothing can be made beforehand."""
        del name, added
        return Draft((), {})

    def forget(self, name: str) -> None:
        """Let go of a collection that is no longer there."""
        self.columns.pop(name, None)
        self._boxes.pop(name, None)
        self._doubts.pop(name, None)

    def follow(self, name: str, done: Change, draft: Draft | None = None) -> bool:
        """Let Qdrant have a committed change, if it can take it now."""
        del draft
        self._tell(name, done)
        return False

    def _tell(self, name: str, done: Change) -> None:
        if self._server.late:  # and whoever finds out whether it still is may take as long
            self.doubt([name])
            self.attempt([name])
            return
        with self._turn():
            behind = self._behind(name)
            self.doubt([name])
            if behind:
                self.attempt([name])
                return
            doubt = self._doubts[name]
            with suppress(SourceError), self._noting(name):
                tenants = self._tenants(name)
                owners = frozenset(tenants(row.access) for row in done.added) or None
                self._boxes[name].apply(done.added, done.removed, self._truth.state(), tenants, owners)
                self._settled[name] = doubt

    def rebuild(self) -> None:
        """Ask Qdrant again how far it has come; what is there now may be of an earlier time."""
        self._keys.clear()
        self.doubt(self.columns)

    def heal(self) -> None:
        """Nothing yet: what Qdrant has not seen is sent when the store is open."""

    def add_columns(self, name: str, fields: set[str]) -> None:
        """Nothing: Qdrant has every field."""

    def add_declared_columns(self) -> None:
        """Nothing: Qdrant has every field."""

    def flush(self) -> None:
        """What Qdrant has is durable; it will not ask again for what was removed."""
        if not any(map(self._behind, self.columns)):
            self._truth.forget_removed(self._truth.seq)

    def optimize(self) -> None:
        """Nothing: Qdrant merges what it holds by itself."""
        self.flush()

    def warm(self) -> None:
        """Let Qdrant have what it has not seen, so that the first real query need not wait for it."""
        self.attempt(self.columns)

    def release(self) -> None:
        """Let go of Qdrant."""
        self._server.close()

    # --- inside ---

    @contextmanager
    def _noting(self, name: str) -> Generator[None]:
        """Notes that Qdrant, or the truth, failed; what it has of a collection that it refused is looked at anew."""
        try:
            yield
            self._trouble = ""
        except SourceError as failure:
            self._trouble = str(failure)
            if name in self._boxes and isinstance(failure, SourceUnavailable):
                self._boxes[name].sound = False
            self._failures += 1
            self._resting = monotonic() + self._server.options.pause
            raise

    def _behind(self, name: str) -> bool:
        box = self._boxes.get(name)
        return box is None or not box.sound or self._settled.get(name) != self._doubts[name]

    def _send(self, name: str) -> None:
        """Send a collection's writes that Qdrant has not seen; all of them when what it has cannot be trusted."""
        box, first = self._box(name)
        seen = box.seen
        # Else an earlier state was put back, or too much was missed.
        told = box.whole and self._truth.tells_since(seen)
        self._replay(box, name, seen if told else NOTHING)
        if box.lacking:
            if told:
                self._fill(box, name)
            box.complete()
        if (first or not told) and box.count() != self._truth.count(name):
            if told:
                self._replay(box, name, NOTHING)
            box.sweep(self._truth.places)
        self._boxes[name] = box

    def _replay(self, box: Box, name: str, seen: State) -> None:
        now = self._truth.state()
        if seen != now:
            removed, added = self._truth.removed_since(seen.seq, name), self._truth.since(seen.seq, name)
            box.apply(added, removed, now, self._tenants(name))

    def _fill(self, box: Box, name: str) -> None:
        """Send again the passages that have a value for new fields; what a tenant declares costs others no more."""
        lacking = box.lacking
        rows = (row for row in self._truth.since(0, name) if payload_of(record_of(row), lacking))
        box.apply(rows, (), self._truth.state(), self._tenants(name))

    def _box(self, name: str) -> tuple[Box, bool]:
        """The box of a collection as it is now, and whether it must be looked at, for it is new or was refused."""
        found, columns = self._boxes.get(name), self.columns[name]
        if found is not None and found.sound and found.columns == columns:
            return found, False
        box = Box(self._server, self._store, name, columns, self._options.vectors)
        box.prepare()
        return box, True

    def _tenants(self, name: str) -> Tenants:
        """The key of the tenant to whom an access class belongs."""

        def key(access: int) -> str:
            if access not in self._keys:
                self._keys |= {number: tenant_key(one.tenant) for number, one in self._truth.classes(name).items()}
            return self._keys[access]

        return key


async def warmed(index: _I) -> _I:
    """An index that has sent Qdrant what it has not seen; one that cannot tell what that is, is closed again."""
    async with AsyncExitStack() as undo:
        undo.push_async_callback(index.close)
        await index.warm()
        undo.pop_all()
    return index


def _alone() -> Turn:
    lock = threading.RLock()
    return lambda: lock
