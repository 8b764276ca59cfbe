"""Audit of a store: finds every place that still holds an id or a text, also in free space and logs of its files.

It reads files and tables as they are, without the code that wrote them, so that it proves what that code removed.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from contexture.adapters.postgres.address import parse_address
from contexture.errors import InvalidRequest

MIN_RAW_LENGTH = 8
"""Bytes from which an id is searched in raw files; shorter ones occur by chance."""

_SQLITE_MAGIC = b"SQLite format 3\0"
_LOG_SUFFIXES = ("-wal", "-journal")
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTrace:
    """A place that holds the searched text, and how many rows or occurrences there are."""

    place: str
    count: int


def audit_folder(home: Path, text: str) -> list[FoundTrace]:
    """Every trace of a text in the files of a store's folder, by file and table."""
    forms = _encode_forms(text)
    found: list[FoundTrace] = []
    for path in sorted(path for path in home.rglob("*") if path.is_file() and not path.is_symlink()):
        place = str(path.relative_to(home))
        if any(form in place.encode() for form in forms) and len(text) >= MIN_RAW_LENGTH:
            found.append(FoundTrace(place=f"{place} (name of the file)", count=1))
        tables = list(_audit_sqlite(path, place, forms)) if _is_sqlite(path) else []
        found += tables
        if not tables and len(forms[0]) >= MIN_RAW_LENGTH and (count := _count_raw(path, forms)):
            rest = " (free space)" if _is_sqlite(path) else ""
            found.append(FoundTrace(place=f"{place}{rest}", count=count))
        elif not tables and not _is_sqlite(path) and not place.endswith(_LOG_SUFFIXES) and path.suffix == ".json":
            count = len(_compile_bounded(forms).findall(path.read_bytes()))
            found += [FoundTrace(place=place, count=count)] if count else []
    return found


def audit_database(url: str, text: str) -> list[FoundTrace]:
    """Every trace of a text in the tables of a store in PostgreSQL, by table."""
    from contexture.adapters.postgres.pool import PostgresPool

    pool, pattern = PostgresPool(url), f"(^|[^0-9A-Za-z_-]){re.escape(text)}($|[^0-9A-Za-z_-])"
    schema = parse_address(url).schema
    found: list[FoundTrace] = []
    try:
        with pool.transaction("READ ONLY") as db:
            tables = db.execute(
                "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = %s OR starts_with(schemaname, %s) "
                "ORDER BY 1, 2",
                (schema, f"{schema}_"),
            ).fetchall()
            for owner, table in tables:
                query = f'SELECT count(*) FROM "{owner}"."{table}" AS held WHERE held::text ~ %s'  # noqa: S608 - names of the catalogue
                given = [pattern]
                if len(text.encode()) >= MIN_RAW_LENGTH:  # binary columns are shown in hexadecimal
                    query += " OR position(%s in held::text) > 0"
                    given.append(text.encode().hex())
                row = db.execute(query.encode(), given).fetchone()
                if row is not None and row[0]:
                    found.append(FoundTrace(place=f"{owner}.{table}", count=int(row[0])))
    finally:
        pool.close()
    return found


def _encode_forms(text: str) -> list[bytes]:
    """The bytes by which a text is stored: as UTF-8, and escaped as JSON."""
    if not text.strip():
        raise InvalidRequest("there is nothing to search for; give an id or a text")
    plain = text.encode("utf-8", "surrogatepass")
    return list(dict.fromkeys((plain, json.dumps(text)[1:-1].encode())))


def _compile_bounded(forms: list[bytes]) -> re.Pattern[bytes]:
    inside = b"|".join(map(re.escape, forms))
    return re.compile(rb"(?<![0-9A-Za-z_-])(?:" + inside + rb")(?![0-9A-Za-z_-])")


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def _audit_sqlite(path: Path, place: str, forms: list[bytes]) -> Iterator[FoundTrace]:
    """Tables of a SQLite file with rows that hold the text; a damaged file has none, and is searched as bytes."""
    pattern, loose = _compile_bounded(forms), len(forms[0]) >= MIN_RAW_LENGTH
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
            tests = [f'instr(CAST("{name}" AS BLOB), ?) > 0' for name in columns for _ in forms]
            given = [form for _ in columns for form in forms]
            chosen = ", ".join(f'"{name}"' for name in columns)
            query = f'SELECT {chosen} FROM "{table}" WHERE {" OR ".join(tests)}'  # noqa: S608 - names of the schema
            count = sum(
                any(_holds(value, pattern, forms, loose=loose) for value in row) for row in db.execute(query, given)
            )
            if count:
                yield FoundTrace(place=f"{place}: {table}", count=count)


def _holds(value: object, pattern: re.Pattern[bytes], forms: list[bytes], *, loose: bool) -> bool:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if not isinstance(data, bytes):
        return False
    # In packed data a length may stand before a text and look like a letter.
    return bool(pattern.search(data)) or (isinstance(value, bytes) and loose and any(form in data for form in forms))


def _count_raw(path: Path, forms: list[bytes]) -> int:
    """Occurrences in the bytes of a file, read in overlapping pieces."""
    pattern, overlap = re.compile(b"|".join(map(re.escape, forms))), max(map(len, forms)) - 1
    count, tail = 0, b""
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            data = tail + piece
            count += len(pattern.findall(data))
            tail = data[-overlap:] if overlap else b""
    return count
