"""Describes request bodies in OpenAPI by the models that parse them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from pydantic import BaseModel, WithJsonSchema

from contexture.json_objects import object_schema, rename_references
from contexture.results import ANY_JSON

_JSON = "application/json"
_DEFINITIONS, _COMPONENTS = "#/$defs/", "#/components/schemas/"


def any_json(description: str) -> WithJsonSchema:
    """Describe a field that may hold any JSON."""
    return WithJsonSchema({**ANY_JSON, "description": description})


JsonField: TypeAlias = Annotated[Any, any_json("Any JSON.")]


def describe_row(row: type, *, further: bool) -> WithJsonSchema:
    """Describe an object by a `TypedDict`; `further` says that it may have other fields, of any JSON.

    Rows are parsed one by one where they are stored, so that one that is wrong does not stop the others.
    """
    schema = msgspec.json.schema(row)["$defs"][row.__name__]
    return WithJsonSchema({**schema, "additionalProperties": ANY_JSON if further else False})


def describe_body(model: type, *, name: str = "", without: Collection[str] = ()) -> dict[str, Any]:
    """Return `openapi_extra` of a route whose body is an object that `parse_object` reads with the same arguments."""
    schema = object_schema(model, name=name, without=without)
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": schema}}}}


def describe_plugin_body(kind: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return `openapi_extra` of a route whose body the request model of another package parses.

    Its components are named `KIND.NAME`, so that none replaces a component of the same name.
    """
    schema = rename_references(
        model.model_json_schema(), lambda place: place.replace(_DEFINITIONS, f"{_DEFINITIONS}{kind}.")
    )
    parts = {f"{kind}.{name}": part for name, part in schema.pop("$defs", {}).items()}
    top = parts[schema["$ref"].removeprefix(_DEFINITIONS)] if "$ref" in schema else schema
    body = {**top, "title": f"{kind}.{model.__name__}", "$defs": parts}
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": body}}}}


def collect_components(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI document in which bodies described above, and their definitions, are components."""
    found: dict[str, Any] = {}
    paths = {
        path: {method: _collect_body(operation, found) for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    schemas = {**document["components"]["schemas"], **found}
    components = {**document["components"], "schemas": dict(sorted(schemas.items()))}
    return {**document, "paths": paths, "components": components}


def describe_open_routes(document: dict[str, Any], paths: frozenset[str]) -> dict[str, Any]:
    """Return the document in which these paths need no key."""
    for path in paths & document["paths"].keys():
        for operation in document["paths"][path].values():
            operation["security"] = []
    return document


def _collect_body(operation: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = operation.get("requestBody", {})
    schema: dict[str, Any] = body.get("content", {}).get(_JSON, {}).get("schema", {})
    if "$defs" not in schema:
        return dict(operation)
    top = {key: part for key, part in schema.items() if key != "$defs"}
    for name, each in {**schema["$defs"], schema["title"]: top}.items():
        found[name] = rename_references(each, lambda place: place.replace(_DEFINITIONS, _COMPONENTS))
    content = {_JSON: {"schema": {"$ref": _COMPONENTS + schema["title"]}}}
    return {**operation, "requestBody": {**body, "content": content}}


_OPERATION_NAMES = {
    "post /v1/context/query": "build_query_context",
    "post /v1/context/turn": "build_turn_context",
    "post /v1/context/command": "build_command_context",
    "post /v1/context/workspace": "build_workspace_context",
    "post /v1/context/research": "build_research_context",
    "post /v1/ingest/memories": "ingest_memories",
    "delete /v1/ingest/memories": "forget_memories",
    "delete /memory/{memory_id}": "forget_memory",
    "post /v1/forget": "forget_everywhere",
    "post /memory/recall": "recall_memories",
    "post /context/evaluate": "evaluate_context",
}
"""Operation ids that are not the name of the function: it is short there, or answers several paths."""

_PATH_PARAMETERS = {
    "block_id": "The id of a block.",
    "session_id": "The id of a session.",
    "message_id": "The id of a message, as its sender chose it.",
    "build_id": "The id of a recent build, such as `ctx-0123456789ab`.",
    "candidate": "The id of a candidate in the ledger of the build.",
    "memory_id": "The id of a memory.",
    "collection": "The name of a collection.",
    "record_id": "The id of a record.",
    "doc_id": "The id of a document.",
    "page": "The number of a page, from 1.",
    "event_id": "The id of an event of the session.",
}


def describe_operations(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI document with plain operation ids, and a description of every path parameter.

    An operation has the name of its function. A builder of another package is `build_KIND_context`.
    """
    paths = {
        path: {
            method: _describe_operation(operation, _name_operation(path, method, operation["operationId"]))
            for method, operation in operations.items()
        }
        for path, operations in document["paths"].items()
    }
    return {**document, "paths": paths}


def _name_operation(path: str, method: str, generated: str) -> str:
    function = generated.removesuffix(re.sub(r"\W", "_", f"{path}_{method}"))  # which FastAPI appends
    kind = path.removeprefix("/v1/context/")
    default = f"build_{kind.replace('-', '_')}_context" if function == "build" and kind != path else function
    return _OPERATION_NAMES.get(f"{method} {path}", default)


def _describe_operation(operation: Mapping[str, Any], name: str) -> dict[str, Any]:
    parameters = [
        {"description": _PATH_PARAMETERS[each["name"]], **each}
        if each["in"] == "path" and each["name"] in _PATH_PARAMETERS
        else each
        for each in operation.get("parameters", ())
    ]
    named = {**operation, "operationId": name}
    return {**named, "parameters": parameters} if parameters else named
