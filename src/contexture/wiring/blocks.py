"""The workspace's block store, and what writes to it, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contexture.adapters.blocks.sqlite import SqliteBlocks, StoredBlocks
from contexture.blocks.links import names_in
from contexture.blocks.workspace import Workspace
from contexture.config import Settings
from contexture.ports import Index
from contexture.retrieval.prepare import Preparer
from contexture.workspace import WritableBlocks

if TYPE_CHECKING:
    from contexture.adapters.postgres.pool import Pool


def block_store(settings: Settings, pool: Pool | None = None) -> StoredBlocks:
    """Blocks in the store's folder, whose file is made when the first one is written, or in its database."""
    if pool is not None:
        from contexture.adapters.blocks.postgres import PostgresBlocks

        return PostgresBlocks(pool, names_in)
    return SqliteBlocks(settings.home / "blocks.db", names_in)


def block_writer(store: WritableBlocks, index: Index, preparer: Preparer) -> Workspace:
    """What writes blocks to their store and to the engine's index."""
    return Workspace(store=store, index=index, preparer=preparer)
