"""Index with records in SQLite and search in Qdrant, for one process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.qdrant.client import QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantCollectionIndexes, warm_or_close
from contexture.adapters.index.search_ports import SearchBackend
from contexture.errors import StoreUnwritable


class QdrantOverSqlite(EmbeddedIndex):
    """Implements the `Index` port for one process: records in a local folder, search in Qdrant.

    index = await QdrantOverSqlite.open_with_server(Path(".contexture"), options, QdrantServer(QdrantOptions(place="qdrant://db")))
    """

    def __init__(self, folder: Path, options: EmbeddedOptions, server: QdrantServer) -> None:
        self._server = server
        super().__init__(folder, options)

    @classmethod
    async def open_with_server(cls, folder: Path, options: EmbeddedOptions, server: QdrantServer) -> QdrantOverSqlite:
        """Open or create the store; writes that Qdrant has not applied are sent, now or once it can be reached."""
        return await warm_or_close(await asyncio.to_thread(cls, folder, options, server))

    def _open_search_backend(self, options: EmbeddedOptions) -> SearchBackend:
        return QdrantCollectionIndexes(
            self._server, _load_store_id(self._folder / "qdrant.store"), self._sqlite_store, options
        )


def _load_store_id(path: Path) -> str:
    """Unique id of the store on its Qdrant server, created if missing.

    It is kept beside the SQLite file, not in it, so that a store restored by `contexture restore` gets another id.
    """
    if not path.exists() or not path.stat().st_size:  # empty if its creation was interrupted
        try:
            path.write_text(uuid4().hex, "ascii")
        except OSError as failure:
            raise StoreUnwritable(f"cannot write {str(path)!r}: {failure.strerror}") from failure
    return path.read_text("ascii")
