"""Translation of SQLite statements to PostgreSQL's dialect.

The small stores have one set of statements for both databases. This module translates the differences; everything else
in their statements is valid in both.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

_DEPTH_FIRST_WALK = re.compile(r"ORDER BY 2 DESC, 3, 4\s+LIMIT :limit\s+\)")
_REPLACEMENTS: tuple[tuple[re.Pattern[str], str], ...] = (
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

JSON_FUNCTIONS = """
    CREATE FUNCTION texts_in(list TEXT) RETURNS TABLE (key BIGINT, value TEXT) LANGUAGE SQL IMMUTABLE AS
        $$ SELECT at - 1, item COLLATE "C" FROM json_array_elements_text(list::json) WITH ORDINALITY AS i (item, at) $$;
    CREATE FUNCTION numbers_in(list TEXT) RETURNS TABLE (key BIGINT, value BIGINT) LANGUAGE SQL IMMUTABLE AS
        $$ SELECT at - 1, item::bigint FROM json_array_elements_text(list::json) WITH ORDINALITY AS i (item, at) $$;
"""
"""Functions that replace `json_each`: the items of a JSON list with their positions."""


@lru_cache(maxsize=512)
def translate_statement(statement: str) -> bytes:
    """The SQLite statement in PostgreSQL's dialect; `?` is positional, `?1` and `:name` are named."""
    found = statement
    if _DEPTH_FIRST_WALK.search(found):
        # SQLite takes the deepest row from its queue first; PostgreSQL sorts depth-first after the walk.
        walked = _DEPTH_FIRST_WALK.sub(") SEARCH DEPTH FIRST BY position, id SET path", found)
        found = f"{walked} ORDER BY below.path LIMIT :limit"
    for pattern, replacement in _REPLACEMENTS:
        found = pattern.sub(replacement, found)
    return found.encode()


@lru_cache(maxsize=512)
def find_json_lists(statement: str) -> frozenset[str | int]:
    """Parameters of a statement that are JSON lists: names, or positions from 0."""
    places = list(re.finditer(r"\?", statement))
    named = {found[1] for found in re.finditer(r"json_each\(:(\w+)\)", statement)}
    placed = {at for at, found in enumerate(places) if statement[: found.start()].endswith("json_each(")}
    return frozenset(named | placed)


def escape_json_list(listed: str) -> str:
    """The JSON list with `escape_nul` applied to its texts, as to the stored texts they are compared with."""
    if "\\u0000" not in listed and "\\u0001" not in listed:
        return listed
    return json.dumps([escape_nul(item) if isinstance(item, str) else item for item in json.loads(listed)])


def escape_nul(text: str) -> str:
    """Escape NUL characters, which PostgreSQL cannot store; the sort order of texts is unchanged."""
    return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01") if "\x00" in text or "\x01" in text else text


def unescape_nul(text: str) -> str:
    """The text that `escape_nul` escaped."""
    return text.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01") if "\x01" in text else text
