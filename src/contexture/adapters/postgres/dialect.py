"""Statements of the small stores, written once for SQLite, in PostgreSQL's dialect.

SQLGlot parses and writes them; this module translates what has no counterpart, on the parsed statement.
"""

import json
from functools import lru_cache
from typing import NamedTuple

try:
    from sqlglot import exp, parse_one
    from sqlglot.dialects.postgres import Postgres
    from sqlglot.dialects.sqlite import SQLite
except ImportError as missing:
    raise ImportError('a store in PostgreSQL needs sqlglot: pip install "contexture-ai[postgres]"') from missing

_NUMBERS = "rows"  # the name of the only JSON list that holds numbers


class _Statements(SQLite):
    """SQLite's dialect; no statement orders by a column with NULL, so none needs to say where NULL comes."""

    NULL_ORDERING = Postgres.NULL_ORDERING


JSON_FUNCTIONS = """
    CREATE FUNCTION texts_in(list TEXT) RETURNS TABLE (key BIGINT, value TEXT) LANGUAGE SQL IMMUTABLE AS
        $$ SELECT at - 1, item COLLATE "C" FROM json_array_elements_text(list::json) WITH ORDINALITY AS i (item, at) $$;
    CREATE FUNCTION numbers_in(list TEXT) RETURNS TABLE (key BIGINT, value BIGINT) LANGUAGE SQL IMMUTABLE AS
        $$ SELECT at - 1, item::bigint FROM json_array_elements_text(list::json) WITH ORDINALITY AS i (item, at) $$;
"""
"""Functions that replace `json_each`: the items of a JSON list with their positions."""


class TranslatedStatement(NamedTuple):
    """A statement for the driver, and its parameters that are JSON lists: names, or positions from 0."""

    text: bytes
    lists: frozenset[str | int]


@lru_cache(maxsize=1_024)
def translate_statement(statement: str) -> TranslatedStatement:
    """The SQLite statement in PostgreSQL's dialect; `?` is positional and `:name` is named."""
    tree = parse_one(statement, dialect=_Statements)
    lists = _rename_json_lists(tree)
    for node in list(tree.walk()):
        _translate_node(node)
    return TranslatedStatement(tree.sql(Postgres).encode(), lists)


def _rename_json_lists(tree: exp.Expr) -> frozenset[str | int]:
    """Replace `json_each`; returns the parameters that it takes."""
    placed = [each for each in tree.find_all(exp.Placeholder, bfs=False) if not each.this]
    lists: set[str | int] = set()
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() == "json_each":
            given = call.expressions[0]
            named: str = given.this if isinstance(given, exp.Placeholder) and given.this else ""
            lists.add(named or next(at for at, each in enumerate(placed) if each is given))
            call.set("this", "numbers_in" if named == _NUMBERS else "texts_in")
    return frozenset(lists)


def _translate_node(node: exp.Expr) -> None:
    match node:
        case exp.Identifier():
            if node.name == "user":  # a keyword
                node.set("quoted", True)
        case exp.Literal():
            node.set("this", node.name.replace("%", "%%"))  # the driver takes a single one for a parameter
        case exp.Mod():
            node.replace(exp.Anonymous(this="MOD", expressions=[node.this, node.expression]))
        case exp.Join():
            if node.args.get("on") is not None:
                node.set("kind", None)  # SQLite's way to fix the order of a join
        case exp.Table():
            node.set("indexed", None)
        case exp.With():
            _order_walk_at_end(node)
        case _:
            pass


def _order_walk_at_end(node: exp.With) -> None:
    """Sort a walk through a tree depth first after it: SQLite takes the deepest row from its queue first instead."""
    for table in node.expressions:
        walk, statement = table.this, node.parent
        if statement is not None and isinstance(walk, exp.Union) and walk.args.get("order") and walk.args.get("limit"):
            limit = walk.args["limit"]
            walk.set("order", None)
            walk.set("limit", None)
            by, path = exp.var("position, id"), exp.to_identifier("path")
            node.set("search", exp.RecursiveWithSearch(kind="DEPTH", this=by, expression=path))
            statement.set("order", exp.Order(expressions=[exp.column("path", table=table.alias)]))
            statement.set("limit", limit)


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
