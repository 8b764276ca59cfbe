"""The address of a PostgreSQL database: what the driver reads in it, and what of it may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from contexture.errors import InvalidRequest

try:
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:
    raise ImportError('a store in PostgreSQL needs psycopg: pip install "contexture[postgres]"') from missing

_SCHEMA = "contexture"
_NAME = re.compile("[a-z_][a-z0-9_]{0,40}")
_UNREADABLE = (
    "the address of the database cannot be read: it is postgres://USER:PASSWORD@HOST:PORT/NAME?OPTION=VALUE, and "
    "'@', '/', '?' and '%' in a user or a password are written as %40, %2F, %3F and %25"
)


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """What the driver is told, in which schema the tables are, and how to name the place without a password."""

    options: Mapping[str, Any]
    schema: str
    name: str


def address_of(url: str) -> Address:
    """Read an address; one that cannot be read is refused without a word of it, for a word may be of a password."""
    rest, schema = split_schema(url)
    place, _, query = rest.partition("://")[2].partition("?")
    server, _, path = place.partition("/")
    if "@" in path or server.count("@") > 1 or ("@" in query and "@" not in server):
        raise InvalidRequest(_UNREADABLE)
    try:
        options = conninfo_to_dict(rest)
    except Error:
        raise InvalidRequest(_UNREADABLE) from None
    return Address(options, schema, f"PostgreSQL at {options.get('host', 'localhost')}/{options.get('dbname', '')}")


def split_schema(url: str) -> tuple[str, str]:
    """A URL as the driver reads it, and the schema that it names."""
    place, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part]
    named = [unquote(part.partition("=")[2]) for part in parts if part.startswith("schema=")]
    schema = named[-1] if named else _SCHEMA
    if not _NAME.fullmatch(schema):
        raise InvalidRequest(f"{schema!r} cannot name a schema: use small letters, digits and '_'")
    rest = "&".join(part for part in parts if not part.startswith("schema="))
    return f"{place}?{rest}" if rest else place, schema
