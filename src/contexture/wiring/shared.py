"""A store that several processes share: where it is, and what is kept there instead of in the store's folder."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from contexture.adapters.builds import BuildFolder
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.over_truth import IndexOverTruth
from contexture.adapters.index.shelf import EmbeddedOptions
from contexture.adapters.keys import ApiKeys
from contexture.config import Settings
from contexture.errors import UnknownAdapter
from contexture.wiring.qdrant import in_qdrant

if TYPE_CHECKING:
    from contexture.adapters.postgres.files import PostgresBuilds
    from contexture.adapters.postgres.pool import Pool

SALT = "redaction.salt"
_POSTGRES = ("postgres://", "postgresql://")


async def opened(settings: Settings, options: EmbeddedOptions) -> IndexOverTruth:
    """The index of the store: in its folder, in the database that the settings name, or in Qdrant over either."""
    if settings.truth and not settings.in_qdrant:
        raise UnknownAdapter(
            "CONTEXTURE_TRUTH is the database behind a store in Qdrant, which CONTEXTURE_STORE must name"
        )
    if settings.database and not settings.database.startswith(_POSTGRES):
        kind = settings.database.partition(":")[0]
        raise UnknownAdapter(
            f"a store cannot be in a {kind!r}; it is in a folder, at `postgres://HOST/NAME` or `qdrant://HOST:PORT`"
        )
    store = await _index(settings, options)
    pool = pool_of(store)
    if pool is not None:
        _share_salt(pool, settings.home / SALT)
    return store


def beside(store: str, name: str) -> str:
    """The address of another store in the same database; a folder has no address."""
    if not store:
        return ""
    from contexture.adapters.postgres.address import split_schema

    rest, schema = split_schema(store)
    return f"{rest}{'&' if '?' in rest else '?'}schema={schema}_{name}"


def pool_of(store: object) -> Pool | None:
    """The connections of a store that is in a database; None of one in a folder."""
    found: Pool | None = getattr(store, "pool", None)
    return found


def builds(settings: Settings, pool: Pool | None) -> BuildFolder | PostgresBuilds:
    """Recent builds, in the store's folder or its database."""
    if pool is None:
        return BuildFolder(settings.home / "builds", settings.keep_builds)
    from contexture.adapters.postgres.files import PostgresBuilds, PostgresFiles

    return PostgresBuilds(PostgresFiles(pool), settings.keep_builds)


def api_keys(settings: Settings) -> ApiKeys:
    """The keys of the store; close them."""
    if not settings.database:
        return ApiKeys(settings.home / "keys.sqlite")
    from contexture.adapters.postgres.keys import PostgresKeys
    from contexture.adapters.postgres.pool import Pool

    return PostgresKeys(Pool(settings.database))


async def _index(settings: Settings, options: EmbeddedOptions) -> IndexOverTruth:
    if settings.in_qdrant:
        return await in_qdrant(settings, options)
    if not settings.database:
        return await EmbeddedIndex.open(settings.home, options)
    from contexture.adapters.index.postgres.index import PostgresIndex

    return await PostgresIndex.open(settings.database, settings.home / "replicas", options)


def _share_salt(pool: Pool, path: Path) -> None:
    """Have the salt that all processes have; it is made by the first of them."""
    from contexture.adapters.postgres.files import PostgresFiles

    mine = path.read_bytes() if path.exists() else b""
    shared = PostgresFiles(pool).first("salt", SALT, mine or secrets.token_bytes(16))
    if shared != mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(shared)
