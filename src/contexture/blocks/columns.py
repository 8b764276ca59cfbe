"""What a database says about its columns."""

from __future__ import annotations

from collections.abc import Mapping

from contexture.types import Json
from contexture.workspace import Block, BlockType

SCHEMA = "schema"
_RELATION = "relation"


def schema_of(parent: Block | None) -> Mapping[str, Json]:
    """The columns of a database with their types; of anything else none."""
    schema = parent.properties.get(SCHEMA) if parent is not None and parent.type is BlockType.DB else None
    return schema if isinstance(schema, dict) else {}


def relations_of(schema: Mapping[str, Json]) -> frozenset[str]:
    """The columns whose cells name other rows; a type is a text, or an object with a `type`."""
    return frozenset(
        column for column, kind in schema.items() if (kind.get("type") if isinstance(kind, dict) else kind) == _RELATION
    )
