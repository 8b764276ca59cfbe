"""An index in Qdrant whose truth is SQLite in the store's folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.parts import Parts
from contexture.adapters.index.qdrant.client import Server
from contexture.adapters.index.qdrant.shelf import RemoteShelf, warmed
from contexture.adapters.index.shelf import EmbeddedOptions
from contexture.errors import StoreUnwritable


class QdrantOverSqlite(EmbeddedIndex):
    """Implements the `Index` port for one process with a folder, and Qdrant for whatever is searched.

    index = await QdrantOverSqlite.opened(Path(".contexture"), options, Server(QdrantOptions(place="qdrant://db")))
    """

    def __init__(self, folder: Path, options: EmbeddedOptions, server: Server) -> None:
        self._server = server
        super().__init__(folder, options)

    @classmethod
    async def opened(cls, folder: Path, options: EmbeddedOptions, server: Server) -> QdrantOverSqlite:
        """Open or create the store; writes that Qdrant has not seen are sent, now or as soon as it can be reached."""
        return await warmed(await asyncio.to_thread(cls, folder, options, server))

    def _shelve(self, options: EmbeddedOptions) -> Parts:
        return RemoteShelf(self._server, _identity(self._folder / "qdrant.store"), self._file, options)


def _identity(path: Path) -> str:
    """What tells a store from every other on the same server; beside the truth, so that a restored one is another."""
    if not path.exists() or not path.stat().st_size:  # empty when whoever made it was cut short
        try:
            path.write_text(uuid4().hex, "ascii")
        except OSError as failure:
            raise StoreUnwritable(f"cannot write {str(path)!r}: {failure.strerror}") from failure
    return path.read_text("ascii")
