"""API keys bound to a tenant, a user and groups, hashed in a SQLite file that only its owner can read."""

import hashlib
import hmac
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from contexture.adapters.index.disk_space import check_free_space
from contexture.adapters.private_files import create_private_database
from contexture.adapters.store_damage import check_at_open, sqlite_errors
from contexture.errors import InvalidRequest, NotFound, StoreUnwritable
from contexture.types import DEFAULT_RIGHTS, ApiKey, Right, Scope

_TOKEN = re.compile(r"ctx_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_SCHEMA = """create table if not exists keys (
  id text primary key, name text not null, hash blob not null, tenant text not null, user text not null,
  groups text not null, created real not null, expires real, revoked real, rights text)"""
_RIGHTS = {right.value: right for right in Right}
_COLUMNS = "id, name, tenant, user, groups, created, expires, revoked, rights"


class ApiKeys:
    """Implements the `KeyStore` port; a key is read from disk on every use, so revocation takes effect immediately."""

    needs_thread = False

    def __init__(self, path: Path) -> None:
        self._guard = threading.Lock()
        self._path = path
        check_at_open(path)
        with ExitStack() as undo, sqlite_errors(path):
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                create_private_database(path)
            except OSError as failure:
                raise StoreUnwritable(f"cannot store keys in {str(path)!r}: {failure.strerror}") from failure
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            undo.callback(self._db.close)
            self._db.execute("pragma journal_mode=wal")
            self._db.execute(_SCHEMA)
            self._add_rights_column()
            undo.pop_all()

    def add(
        self,
        name: str,
        scope: Scope,
        *,
        now: datetime,
        expires: datetime | None = None,
        rights: Iterable[Right] = DEFAULT_RIGHTS,
    ) -> tuple[ApiKey, str]:
        """Create a key; returns it with its token, which is not stored and cannot be shown again.

        Raises `InvalidRequest` without a name or rights, or if `expires` is in the past.
        """
        given = frozenset(rights)
        if not given:
            raise InvalidRequest("a key needs at least one scope")
        if not name.strip():
            raise InvalidRequest("a key needs a name that says what it is for")
        if expires is not None and expires <= now:
            raise InvalidRequest("the expiry time of a key must be in the future")
        try:
            "".join((name, scope.tenant, scope.user, *scope.groups)).encode()
        except UnicodeEncodeError as failure:
            raise InvalidRequest("the names of a key may not contain a lone surrogate") from failure
        self._check_space()
        made = ApiKey(id=secrets.token_hex(6), name=name, scope=scope, created=now, expires=expires, rights=given)
        secret = secrets.token_urlsafe(32)
        groups = msgspec.json.encode(scope.groups).decode()
        until = expires.timestamp() if expires else None
        row = (
            made.id,
            name,
            _hash_secret(secret),
            scope.tenant,
            scope.user,
            groups,
            now.timestamp(),
            until,
            _encode_rights(given),
        )
        self._run(
            "insert into keys (id, name, hash, tenant, user, groups, created, expires, rights)"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        return made, f"ctx_{made.id}_{secret}"

    def list(self) -> Sequence[ApiKey]:
        """All keys, also revoked and expired ones, oldest first."""
        rows = self._run(f"select {_COLUMNS} from keys order by created, id")  # noqa: S608 - a constant
        with self._storage_errors():
            return [_key_from_row(row) for row in rows]

    def revoke(self, key_id: str, *, now: datetime) -> ApiKey:
        """Revoke a key; revoking it again changes nothing. Raises `NotFound` for an unknown id."""
        self._run("update keys set revoked = ? where id = ? and revoked is null", (now.timestamp(), key_id))
        found = next((key for key in self.list() if key.id == key_id), None)
        if found is None:
            raise NotFound(f"there is no key {key_id!r}; `contexture keys list` shows all keys")
        return found

    def _storage_errors(self) -> AbstractContextManager[None]:
        """Raises errors of the file as ours."""
        return sqlite_errors(self._path)

    def _check_space(self) -> None:
        """Raise `StoreUnwritable` if the disk is nearly full."""
        check_free_space(self._path.parent)

    def find(self, presented: str, *, now: datetime) -> ApiKey | None:
        """Active key for a token; None if the token is unknown, wrong, revoked or expired."""
        parts = _TOKEN.fullmatch(presented)
        if parts is None:
            return None
        query = f"select {_COLUMNS}, hash from keys where id = ?"  # noqa: S608 - a constant
        row = next(iter(self._run(query, (parts[1],))), None)
        # An unknown id is compared too, so that it takes as long as a wrong secret (timing attacks).
        stored = bytes(32) if row is None else row[-1]
        same = hmac.compare_digest(stored, _hash_secret(parts[2]))
        if row is None or not same:
            return None
        with self._storage_errors():
            found = _key_from_row(row)
        return found if found.is_active(now) else None

    def is_empty(self) -> bool:
        """Whether no key was ever added; one that was revoked or has expired still counts."""
        return not self._run("select 1 from keys limit 1")

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def _add_rights_column(self) -> None:
        """Add the `rights` column to older files; two processes may do so at the same time."""
        if all(row[1] != "rights" for row in self._db.execute("pragma table_info(keys)")):
            try:
                self._db.execute("alter table keys add column rights text")
            except sqlite3.OperationalError as failure:
                if "duplicate column" not in str(failure):
                    raise

    def _run(self, statement: str, values: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        with self._guard, self._storage_errors():
            return self._db.execute(statement, values).fetchall()


def _hash_secret(secret: str) -> bytes:
    # A slow hash is for secrets that people choose. This one has 256 random bits, which cannot be brute-forced, and is
    # checked on every request.
    return hashlib.sha256(secret.encode("ascii")).digest()


def _key_from_row(row: tuple[Any, ...]) -> ApiKey:
    key_id, name, tenant, user, groups, created, expires, revoked, rights = row[:9]
    return ApiKey(
        id=key_id,
        name=name,
        scope=Scope(tenant=tenant, user=user, groups=tuple(msgspec.json.decode(groups, type=list[str]))),
        created=_from_timestamp(created),
        expires=None if expires is None else _from_timestamp(expires),
        revoked=None if revoked is None else _from_timestamp(revoked),
        rights=DEFAULT_RIGHTS if rights is None else _decode_rights(rights),
    )


def _encode_rights(rights: Iterable[Right]) -> str:
    return ",".join(sorted(rights))


def _decode_rights(text: str) -> frozenset[Right]:
    """Rights from their stored names; names that this version does not know are ignored."""
    return frozenset(_RIGHTS[name] for name in text.split(",") if name in _RIGHTS)


def _from_timestamp(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
