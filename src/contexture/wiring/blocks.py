"""The workspace's block store, and what writes to it, from settings."""

from __future__ import annotations

from contexture.adapters.blocks.sqlite import SqliteBlocks
from contexture.blocks.links import names_in
from contexture.blocks.workspace import Workspace
from contexture.config import Settings
from contexture.ports import Index
from contexture.retrieval.prepare import Preparer
from contexture.workspace import WritableBlocks


def block_store(settings: Settings) -> SqliteBlocks:
    """Blocks in the store's folder; the file is made when the first one is written."""
    return SqliteBlocks(settings.home / "blocks.db", names_in)


def block_writer(store: WritableBlocks, index: Index, preparer: Preparer) -> Workspace:
    """What writes blocks to their store and to the engine's index."""
    return Workspace(store=store, index=index, preparer=preparer)
