"""From settings: the store in its folder, in PostgreSQL or in Qdrant, with its builds, keys and salt."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from contexture.adapters.builds import BuildFolder
from contexture.adapters.index.disk_space import MIN_FREE_BYTES, has_free_space
from contexture.adapters.keys import ApiKeys
from contexture.config import Settings
from contexture.errors import UnknownAdapter
from contexture.ports import Index, KeyStore

if TYPE_CHECKING:
    from contexture.adapters.index.collection_indexes import EmbeddedOptions
    from contexture.adapters.index.qdrant.client import QdrantServer
    from contexture.adapters.postgres.files import PostgresBuilds
    from contexture.adapters.postgres.pool import PostgresPool


SALT_FILE = "redaction.salt"
_POSTGRES_SCHEMES = ("postgres://", "postgresql://")


async def open_index(settings: Settings, options: EmbeddedOptions) -> Index:
    """Open the index of the store: in its folder, in the configured database, or in Qdrant over either."""
    if settings.truth and not settings.in_qdrant:
        raise UnknownAdapter(
            "CONTEXTURE_TRUTH is the database behind a store in Qdrant, which CONTEXTURE_STORE must name"
        )
    if settings.database and not settings.database.startswith(_POSTGRES_SCHEMES):
        kind = settings.database.partition(":")[0]
        raise UnknownAdapter(
            f"unknown kind of store {kind!r}; use a folder, `postgres://HOST/NAME` or `qdrant://HOST:PORT`"
        )
    store = await _open_backend(settings, options)
    pool = connection_pool(store)
    if pool is not None:
        _share_salt(pool, settings.home / SALT_FILE)
    return store


def disk_space_problem(settings: Settings) -> str:
    """Return what keeps the store from being written, if its disk is nearly full; empty otherwise."""
    return "" if has_free_space(settings.home) else f"the disk has less than {MIN_FREE_BYTES >> 20} MB left"


def sibling_store_address(store: str, name: str) -> str:
    """Return the address of another store in the same database; a folder has no address."""
    if not store:
        return ""
    from contexture.adapters.postgres.address import split_schema

    rest, schema = split_schema(store)
    return f"{rest}{'&' if '?' in rest else '?'}schema={schema}_{name}"


def connection_pool(store: object) -> PostgresPool | None:
    """Return the PostgreSQL connection pool of a store in a database; None for a store in a folder."""
    found: PostgresPool | None = getattr(store, "pool", None)
    return found


def builds(settings: Settings, pool: PostgresPool | None) -> BuildFolder | PostgresBuilds:
    """Open the recent builds, in the store's folder or its database."""
    if pool is None:
        return BuildFolder(settings.home / "builds", settings.keep_builds)
    from contexture.adapters.postgres.files import PostgresBuilds, PostgresFiles

    return PostgresBuilds(PostgresFiles(pool), settings.keep_builds)


def api_keys(settings: Settings) -> KeyStore:
    """Open the API keys of the store; close them after use."""
    if not settings.database:
        return ApiKeys(settings.home / "keys.sqlite")
    from contexture.adapters.postgres.keys import PostgresKeys
    from contexture.adapters.postgres.pool import PostgresPool

    return PostgresKeys(PostgresPool(settings.database))


async def _open_backend(settings: Settings, options: EmbeddedOptions) -> Index:
    if settings.in_qdrant:
        return await open_qdrant_index(settings, options)
    if not settings.database:
        from contexture.adapters.index.embedded import EmbeddedIndex

        return await EmbeddedIndex.open(settings.home, options)
    from contexture.adapters.index.postgres.index import PostgresIndex

    return await PostgresIndex.open(settings.database, settings.home / "replicas", options)


def _share_salt(pool: PostgresPool, path: Path) -> None:
    """Share one salt among all processes; the first of them creates it."""
    from contexture.adapters.postgres.files import PostgresFiles

    mine = path.read_bytes() if path.exists() else b""
    shared = PostgresFiles(pool).write_if_absent("salt", SALT_FILE, mine or secrets.token_bytes(16))
    if shared != mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(shared)


def qdrant_server(settings: Settings) -> QdrantServer:
    """Create the client of the configured Qdrant server; it is not contacted yet."""
    from contexture.adapters.index.qdrant.client import QdrantServer
    from contexture.adapters.index.qdrant.options import QdrantOptions

    return QdrantServer(
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


async def open_qdrant_index(settings: Settings, options: EmbeddedOptions) -> Index:
    """Open the index of the store in Qdrant, over the configured record store."""
    server = qdrant_server(settings)
    options = replace(options, exact_limit=settings.qdrant_exact_limit)
    if not settings.database:
        from contexture.adapters.index.qdrant.over_sqlite import QdrantOverSqlite

        return await QdrantOverSqlite.open_with_server(settings.home, options, server)
    from contexture.adapters.index.qdrant.over_postgres import QdrantOverPostgres

    return await QdrantOverPostgres.open_with_server(settings.database, settings.home / "replicas", options, server)
