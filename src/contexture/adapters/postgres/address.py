"""Parsing of PostgreSQL database URLs: driver options, schema, and a name without credentials."""

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
    raise ImportError('a store in PostgreSQL needs psycopg: pip install "contexture-ai[postgres]"') from missing

_DEFAULT_SCHEMA = "contexture"
_SCHEMA_PATTERN = re.compile("[a-z_][a-z0-9_]{0,40}")
_INVALID_ADDRESS = (
    "the database address is invalid; write postgres://USER:PASSWORD@HOST:PORT/NAME?OPTION=VALUE, and encode "
    "'@', '/', '?' and '%' in the user or the password as %40, %2F, %3F and %25"
)


@dataclass(frozen=True, slots=True, repr=False)
class PostgresAddress:
    """Parsed database URL: driver options, schema, and a name that can be shown because it holds no password."""

    options: Mapping[str, Any]
    schema: str
    name: str


def parse_address(url: str) -> PostgresAddress:
    """Parse a database URL; raises `InvalidRequest`, which repeats nothing of it, as it may hold a password."""
    rest, schema = split_schema(url)
    place, _, query = rest.partition("://")[2].partition("?")
    server, _, path = place.partition("/")
    if "@" in path or server.count("@") > 1 or ("@" in query and "@" not in server):
        raise InvalidRequest(_INVALID_ADDRESS)
    try:
        options = conninfo_to_dict(rest)
    except Error:
        raise InvalidRequest(_INVALID_ADDRESS) from None
    return PostgresAddress(
        options, schema, f"PostgreSQL at {options.get('host', 'localhost')}/{options.get('dbname', '')}"
    )


def split_schema(url: str) -> tuple[str, str]:
    """The URL for the driver, without its `schema` option, and the schema; raises `InvalidRequest` if invalid."""
    place, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part]
    named = [unquote(part.partition("=")[2]) for part in parts if part.startswith("schema=")]
    schema = named[-1] if named else _DEFAULT_SCHEMA
    if not _SCHEMA_PATTERN.fullmatch(schema):
        raise InvalidRequest(f"{schema!r} is not a valid schema name: use lower-case letters, digits and '_'")
    rest = "&".join(part for part in parts if not part.startswith("schema="))
    return f"{place}?{rest}" if rest else place, schema
