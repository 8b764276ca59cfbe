"""A store that is searched in Qdrant; its truth is in the store's folder or in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contexture.adapters.index.over_truth import IndexOverTruth
from contexture.adapters.index.shelf import EmbeddedOptions
from contexture.config import Settings

if TYPE_CHECKING:
    from contexture.adapters.index.qdrant.client import Server


def qdrant_server(settings: Settings) -> Server:
    """The Qdrant that the settings name; nothing is asked of it yet."""
    from contexture.adapters.index.qdrant.client import Server
    from contexture.adapters.index.qdrant.options import QdrantOptions

    return Server(
        QdrantOptions(
            place=settings.store,
            api_key=settings.qdrant_api_key,
            timeout=settings.qdrant_timeout_seconds,
            by_tenant=settings.qdrant_shard_by == "tenant",
            shards=settings.qdrant_shard_number,
            replicas=settings.qdrant_replication_factor,
            confirmations=settings.qdrant_write_consistency_factor,
        )
    )


async def in_qdrant(settings: Settings, options: EmbeddedOptions) -> IndexOverTruth:
    """The index of the store, over the truth that the settings name."""
    server = qdrant_server(settings)
    options = replace(options, exact_limit=settings.qdrant_exact_limit)
    if not settings.database:
        from contexture.adapters.index.qdrant.over_sqlite import QdrantOverSqlite

        return await QdrantOverSqlite.opened(settings.home, options, server)
    from contexture.adapters.index.qdrant.over_postgres import QdrantOverPostgres

    return await QdrantOverPostgres.opened(settings.database, settings.home / "replicas", options, server)
