"""Statements written for SQLite, as PostgreSQL reads them.

The small stores keep one set of statements for both. What the two spell differently is said here; everything else the
stores say in the words that both understand.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

_WALKED = re.compile(r"ORDER BY 2 DESC, 3, 4\s+LIMIT :limit\s+\)")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bINDEXED BY \w+"), ""),
    (re.compile(r"\bCROSS JOIN\b"), "JOIN"),
    (re.compile(r"(?<![:\w\"])user\b"), '"user"'),
    (re.compile(r"\bjson_each\(:rows\)"), "numbers_in(:rows)"),
    (re.compile(r"\bjson_each\("), "texts_in("),
    (re.compile(r"%"), "%%"),
    (re.compile(r"\?(\d)"), r"%(p\1)s"),
    (re.compile(r"\?"), "%s"),
    (re.compile(r"(?<![:\w]):(\w+)"), r"%(\1)s"),
)

FUNCTIONS = """
    CREATE FUNCTION texts_in(list TEXT) RETURNS TABLE (key BIGINT, value TEXT) LANGUAGE SQL IMMUTABLE AS
        $$ SELECT at - 1, item COLLATE "C" FROM json_array_elements_text(list::json) WITH ORDINALITY AS i (item, at) $$;
    CREATE FUNCTION numbers_in(list TEXT) RETURNS TABLE (key BIGINT, value BIGINT) LANGUAGE SQL IMMUTABLE AS
        $$ SELECT at - 1, item::bigint FROM json_array_elements_text(list::json) WITH ORDINALITY AS i (item, at) $$;
"""
"""What stands for `json_each`: the items of a JSON list with their places."""


@lru_cache(maxsize=512)
def translated(statement: str) -> bytes:
    """The statement for PostgreSQL; `?` is a place, `?1` and `:name` are names."""
    found = statement
    if _WALKED.search(found):
        # SQLite takes the deepest from its queue first; here the walk is put into that order afterwards.
        walked = _WALKED.sub(") SEARCH DEPTH FIRST BY position, id SET path", found)
        found = f"{walked} ORDER BY below.path LIMIT :limit"
    for pattern, replacement in _RULES:
        found = pattern.sub(replacement, found)
    return found.encode()


@lru_cache(maxsize=512)
def lists_in(statement: str) -> frozenset[str | int]:
    """The parameters of a statement that are JSON lists, by name, or by place from 0."""
    places = list(re.finditer(r"\?", statement))
    named = {found[1] for found in re.finditer(r"json_each\(:(\w+)\)", statement)}
    placed = {at for at, found in enumerate(places) if statement[: found.start()].endswith("json_each(")}
    return frozenset(named | placed)


def escaped_list(listed: str) -> str:
    """A JSON list whose items are escaped, as the texts are that they are compared with."""
    if "\\u0000" not in listed and "\\u0001" not in listed:
        return listed
    return json.dumps([escaped(item) if isinstance(item, str) else item for item in json.loads(listed)])


def escaped(text: str) -> str:
    """A text that PostgreSQL can hold, which has no place for NUL; the order of texts stays what it was."""
    return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01") if "\x00" in text or "\x01" in text else text


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return text.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01") if "\x01" in text else text
