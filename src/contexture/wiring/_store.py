"""From settings: the store in its folder, in PostgreSQL or in Qdrant, with its builds, keys and salt."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from contexture.adapters import store_damage
from contexture.adapters.builds import BuildFolder
from contexture.adapters.index.disk_space import MIN_FREE_BYTES, has_free_space
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.keys import ApiKeys
from contexture.adapters.store_damage import DamagedDatabase, StopCheck
from contexture.config import IndexOptions, Settings
from contexture.errors import UnknownAdapter
from contexture.ports import Index, KeyStore
from contexture.types import PreparedRecord, Record
from contexture.wiring import plugins

if TYPE_CHECKING:
    from contexture.adapters.index.collection_indexes import EmbeddedOptions
    from contexture.adapters.index.qdrant.client import QdrantServer
    from contexture.adapters.postgres.files import PostgresBuilds
    from contexture.adapters.postgres.pool import PostgresPool
    from contexture.adapters.store_audit import FoundTrace
    from contexture.adapters.store_migration.salvage import SalvageProgress, SalvageReport


SALT_FILE = "redaction.salt"
_POSTGRES_SCHEMES = ("postgres://", "postgresql://")


async def open_index(options: IndexOptions) -> Index:
    """Open the index of the store: in its folder, in a database, in Qdrant over either, or that of another package."""
    settings = options.settings
    if settings.truth and not settings.in_qdrant:
        raise UnknownAdapter(
            "CONTEXTURE_TRUTH is the database behind a store in Qdrant, which CONTEXTURE_STORE must name"
        )
    if settings.truth and not settings.database:
        raise UnknownAdapter(_unknown_place(settings.truth))
    store = await plugins.open_index(settings.store, options)
    pool = connection_pool(settings, store)
    if pool is not None:
        _share_salt(pool, settings.home / SALT_FILE)
    return store


async def open_folder(address: str, options: IndexOptions) -> Index:
    """Open the index in the store's folder."""
    if address:
        raise UnknownAdapter("the folder of a store is CONTEXTURE_HOME, and CONTEXTURE_STORE is empty")
    from contexture.adapters.index.embedded import EmbeddedIndex

    return await EmbeddedIndex.open(options.settings.home, _embedded_options(options))


async def open_postgres(address: str, options: IndexOptions) -> Index:
    """Open the index over a database."""
    if not address.startswith(_POSTGRES_SCHEMES):
        raise UnknownAdapter(_unknown_place(address))
    from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions

    chosen = PostgresOptions(vectors=options.vectors, exact_limit=options.settings.postgres_exact_limit)
    return await PostgresIndex.open(address, chosen)


async def open_qdrant(address: str, options: IndexOptions) -> Index:
    """Open the index in Qdrant, over the configured record store."""
    settings = options.settings
    server = qdrant_server(settings.model_copy(update={"store": address}))
    chosen = replace(_embedded_options(options), exact_limit=settings.qdrant_exact_limit)
    if not settings.database:
        from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite

        return await QdrantOverSqlite.open_with_server(settings.home, chosen, server)
    from contexture.adapters.index.postgres.index import PostgresOptions
    from contexture.adapters.index.qdrant.over_postgres import QdrantOverPostgres

    layout = PostgresOptions(vectors=options.vectors, exact_limit=settings.qdrant_exact_limit)
    return await QdrantOverPostgres.open_with_server(settings.database, layout, server)


def _unknown_place(address: str) -> str:
    kind = address.partition(":")[0]
    return f"unknown kind of store {kind!r}; use a folder, `postgres://HOST/NAME` or `qdrant://HOST:PORT`"


def _embedded_options(options: IndexOptions) -> EmbeddedOptions:
    from contexture.adapters.index.collection_indexes import EmbeddedOptions

    settings = options.settings
    return EmbeddedOptions(
        vectors=options.vectors, threads=settings.search_threads, memory_bytes=settings.index_memory_mb << 20
    )


@contextmanager
def lock_folder(settings: Settings) -> Generator[None]:
    """Keep other processes out of the folder of a store whose index is of another package.

    The indexes of Contexture lock it themselves where they must. Raises `StoreLocked`.
    """
    if not settings.in_plugin:
        yield
        return
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = StoreLock(settings.home)
    try:
        yield
    finally:
        lock.release()


def disk_space_problem(settings: Settings) -> str:
    """Return what keeps the store from being written, if its disk is nearly full; empty otherwise."""
    return "" if has_free_space(settings.home) else f"the disk has less than {MIN_FREE_BYTES >> 20} MB left"


def find_store_damage(
    settings: Settings, *, quick: bool = False, stop: StopCheck | None = None
) -> Sequence[DamagedDatabase]:
    """Return the damaged databases in the store's folder; see `store_damage.find_store_damage`."""
    return store_damage.find_store_damage(settings.home, quick=quick, stop=stop)


def salvage_store(settings: Settings, target: Path, progress: SalvageProgress | None = None) -> SalvageReport:
    """Copy what can be read of the store into a new one; what a record lost is computed again."""
    from contexture.adapters.store_migration import salvage
    from contexture.wiring import _core

    fresh = settings.model_copy(update={"home": target})  # nothing is written into the damaged store
    maker = _core.preparer(fresh, _core.encoders(fresh), _core.redactor(fresh))

    def prepare(record: Record) -> PreparedRecord:
        return asyncio.run(maker.prepare([record]))[0]

    try:
        return salvage.salvage_store(settings.home, target, prepare=prepare, progress=progress)
    finally:
        maker.close()


def delete_derived_files(settings: Settings) -> Sequence[str]:
    """Delete search indexes and caches of the store; the indexes are filled when it is next opened."""
    from contexture.adapters.store_migration.salvage import delete_derived_files as delete_files

    return delete_files(settings.home)


def sibling_store_address(store: str, name: str) -> str:
    """Return the address of another store in the same database; a folder has no address."""
    if not store:
        return ""
    from contexture.adapters.postgres.address import split_schema

    rest, schema = split_schema(store)
    return f"{rest}{'&' if '?' in rest else '?'}schema={schema}_{name}"


def connection_pool(settings: Settings, store: object) -> PostgresPool | None:
    """Return the PostgreSQL connection pool of a store in a database; None for a store anywhere else."""
    found: PostgresPool | None = getattr(store, "pool", None) if settings.database else None
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
    from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer

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


def audit_store(settings: Settings, text: str) -> list[FoundTrace]:
    """Find every place of the store that holds a text: in its folder, and in its database."""
    from contexture.adapters.store_audit import audit_database, audit_folder

    here = audit_folder(settings.home, text) if settings.home.is_dir() else []
    return [*here, *(audit_database(settings.database, text) if settings.database else [])]


def unsearched_places(settings: Settings) -> list[str]:
    """Name the places outside the folder and the database of a store that may hold its texts."""
    return [
        *(["the Qdrant server"] if settings.in_qdrant else []),
        *(["the remote memory service"] if settings.memory_url else []),
        *(["the index of another package"] if settings.in_plugin else []),
    ]
