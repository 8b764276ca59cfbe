"""An index in Qdrant whose truth is SQLite in the store's folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.parts import Parts
from contexture.adapters.index.qdrant.client import Server
from contexture.adapters.index.qdrant.shelf import RemoteShelf
from contexture.adapters.index.shelf import EmbeddedOptions


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
        index = await asyncio.to_thread(cls, folder, options, server)
        await index.warm()
        return index

    def _shelve(self, options: EmbeddedOptions) -> Parts:
        return RemoteShelf(self._server, self._file, options)
