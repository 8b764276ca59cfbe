"""Describes request bodies in OpenAPI by the models that parse them."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, WithJsonSchema

from contexture.json_objects import object_schema, read_whole_numbers, rename_references
from contexture.results import ANY_JSON

_JSON = "application/json"
_DEFINITIONS, _COMPONENTS = "#/$defs/", "#/components/schemas/"


def any_json(description: str) -> WithJsonSchema:
    """Describe a field that may hold any JSON."""
    return WithJsonSchema({**ANY_JSON, "description": description})


def require_written_time(value: object) -> object:
    """The value itself, if it is a text and no number; a number would be read as seconds since 1970."""
    if not isinstance(value, str) or re.fullmatch(r"\s*[+-]?[\d_.]+(?:e[+-]?\d+)?\s*", value, re.IGNORECASE):
        raise ValueError("write a time such as 2026-01-01T00:00:00Z")
    return value


TimeField: TypeAlias = Annotated[AwareDatetime, BeforeValidator(require_written_time)]
"""A time with its offset, as ISO 8601 writes it."""
JsonField: TypeAlias = Annotated[Any, any_json("Any JSON.")]
AnySpelling = BeforeValidator(read_whole_numbers)
"""Lets a whole number be spelled as JSON allows, such as `5` and `5.0`; the last note of a field."""
PrincipalField: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": r"^(public|(user|group):[\s\S]+)$"})]
"""Who may read: `public`, `user:NAME` or `group:NAME`; where it is stored it is checked."""


def describe_row(row: type, *, further: bool) -> WithJsonSchema:
    """Describe an object by a `TypedDict`; `further` says that it may have other fields, of any JSON.

    Rows are parsed one by one where they are stored, so that one that is wrong does not stop the others.
    """
    schema = msgspec.json.schema(row)["$defs"][row.__name__]
    wrong = {"description": "Any other row; it is reported.", "type": "object", "additionalProperties": ANY_JSON}
    return WithJsonSchema({"anyOf": [{**schema, "additionalProperties": ANY_JSON if further else False}, wrong]})


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
    "post /v1/context/ask": "build_ask_context",
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
    "name": "Name of a model, as `GET /v1/models` lists it.",
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
    "job_id": "The id of a job, as its first answer says.",
}


_QUERY = ("the query is empty", "the query has … characters, and … are allowed (CONTEXTURE_MAX_QUERY_CHARACTERS)")
_FILTER = (
    "unknown filter field …; this collection has …",
    "… is neither a number nor an ISO time",
    "a filter may be nested … levels deep",
)
_MODEL = ("model … is not configured; the configured models are …",)
_BUDGET = ("the fixed parts of this prompt need … tokens… but the budget is …; raise the budget to at least …",)
_MESSAGES = (
    "…content is null; only an assistant message with tool_calls may leave it out",
    "… is not a field of a message; it has …",
    "…tool_calls belong to an assistant message, not to …",
    "…tool_call_id must be the id of the tool call that it answers",
)
_COMMAND = (
    "there is no command; begin with one of …",
    "… is not a command; …",
    "the command has … characters; write at most …",
    "… at character … is not a mode of /memory; …",
    "… is given again at character …; say it once: …",
    "… at character … has no value; write …",
    "… at character … is not an argument; …",
    "… at character … is not a value of …",
    "the quote at character … is not closed: …",
)
_READERS = ("…names … readers, and … are allowed (CONTEXTURE_MAX_READERS); …",)
_MEMORY = (
    "a memory needs `text`, or a `value` that is a text or has `text` or `content`",
    "memories[…]: `text` is empty",
    "memories[…]: `metadata` may be nested … levels deep",
    *_READERS,
)
_RESEARCH = (
    *_QUERY,
    *_FILTER,
    "give 'search_mode', or 'include_text' and 'include_visual', not both",
    "include_text and include_visual are both false: there is nothing to search",
)
_BATCH = ("`memories` is missing", *_MEMORY)
_OWN_ROUTE = ("records of … have their own route; use …",)
_DOCUMENTS = (*_OWN_ROUTE, *_READERS, "field … of … holds a …: it cannot become a …")
_CURSOR = (
    "… is not a cursor; leave it out, or give the `next` of an answer",
    "… is not part of a cursor; leave the cursor out, or give the `next` of an answer",
)
_TABLE = ("… blocks are selected, and at most … can be; add filters", *_CURSOR)
_IF_MATCH = ('`If-Match` is …; give the version of the block, such as "3"',)
_ONE_BLOCK = (
    "blocks[…]: `readers` of block … may hold 'public', 'user:NAME' and 'group:NAME', not …",
    "blocks[…]: `due` of block … must be an ISO date or time such as 2026-06-01, not …",
    "blocks[…]: block … cannot be its own parent",
)
REFUSALS: Mapping[str, tuple[str, ...]] = {
    "post /v1/search": (*_QUERY, *_FILTER),
    "post /v1/context/ask": (*_QUERY, *_BUDGET),
    "post /v1/ask": (*_QUERY, *_MODEL, *_BUDGET),
    "post /v1/context/query": (*_QUERY, *_FILTER, *_BUDGET),
    "post /v1/context/turn": ("user_message is empty", *_MESSAGES, *_BUDGET),
    "post /v1/context/command": _COMMAND,
    "post /v1/commands": _COMMAND,
    "post /v1/context/workspace": (*_QUERY, *_BUDGET, "unknown time zone …; say one such as …"),
    "post /v1/context/research": _RESEARCH,
    "post /api/research/ask": (*_RESEARCH, *_MODEL),
    "post /v1/workspace/ask": (*_QUERY, *_MODEL, *_BUDGET, "unknown time zone …; say one such as …"),
    "post /v1/builds/answer": _MODEL,
    "post /v1/citations/verify": ("there is nothing to verify: …", "a citation cannot be read: …"),
    "post /v1/chat": (
        "the message is empty",
        "a message with `background` or `message_id` cannot be streamed; leave out `stream`",
        "this service has no message bus; leave out `background`, or set CONTEXTURE_BUS",
        "the id … belongs to another of your messages; use a new id for each message",
        *_MODEL,
        *_BUDGET,
    ),
    "post /v1/chat/completions": (
        "`messages` needs a message of the role 'user': the context is built for the last one",
        "messages[…]: the content of a system message must be a string or parts of text",
        "user_message is empty",
        *_MESSAGES,
        *_MODEL,
        *_BUDGET,
    ),
    "post /v1/embeddings": (
        "`input` must be a text, or 1 to … texts, none of them empty",
        "`dimensions` of … is … and cannot be changed",
    ),
    "post /v1/ingest/jobs": _DOCUMENTS,
    "post /v1/ingest/documents": _DOCUMENTS,
    "delete /v1/ingest/documents": _OWN_ROUTE,
    "post /v1/ingest/articles": _READERS,
    "post /v1/ingest/blocks": (
        "blocks[…]: `id` must be a string of 1 to 512 characters without NUL, not …",
        "blocks[…]: `parent` of block … is not a valid block id: …",
        "blocks[…]: `readers` of block … may hold 'public', 'user:NAME' and 'group:NAME', not …",
        "blocks[…]: `due` of block … must be an ISO date or time such as 2026-06-01, not …",
        "blocks[…]: block … cannot be its own parent",
        "blocks[…]: block … is already blocks[…]",
        "blocks[…]: block … would become its own descendant",
        *_READERS,
    ),
    "post /v1/blocks/{block_id}/move": ("block … would become its own descendant", *_IF_MATCH),
    "patch /v1/blocks/{block_id}": (*_ONE_BLOCK, "block … would become its own descendant", *_READERS, *_IF_MATCH),
    "delete /v1/blocks/{block_id}": _IF_MATCH,
    "post /v1/blocks/{block_id}/revert": _IF_MATCH,
    "post /v1/blocks/{block_id}/copy": ("block … has more than … blocks below it",),
    "post /v1/blocks/{block_id}/query": ("block … is a …, not a db", *_TABLE),
    "post /v1/workspace/tasks": _TABLE,
    "get /v1/blocks": _CURSOR,
    "get /v1/blocks/{block_id}/children": _CURSOR,
    "get /v1/blocks/{block_id}/subtree": _CURSOR,
    "get /v1/workspace/changes": _CURSOR,
    "get /v1/workspace/trash": _CURSOR,
    "post /memory/remember": _MEMORY,
    "post /memory/remember/batch": _BATCH,
    "post /v1/ingest/memories": _BATCH,
    "post /context/feedback": ("`memory_id` is missing", "`score` is missing", *_QUERY),
    "post /v1/forget": (
        "name one subject to forget: a user, a session, ids, a matching text, or the trash",
        "`event_ids` are events of a session; name it with `session_id`",
        "`collection` says where `ids` are; name them too",
        "`matching` has no word by which something could be found",
        *_QUERY,
    ),
}
"""Why a request is refused with 422 although it fits its schema: messages, in which … is a value."""


def describe_operations(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI document with plain operation ids, path parameters described, and reasons of refusals.

    An operation has the name of its function. A builder of another package is `build_KIND_context`.
    """
    paths = {
        path: {
            method: _describe_refusals(
                _describe_operation(operation, _name_operation(path, method, operation["operationId"])),
                REFUSALS.get(f"{method} {path}", ()),
            )
            for method, operation in operations.items()
        }
        for path, operations in document["paths"].items()
    }
    return {**document, "paths": paths}


def _describe_refusals(operation: dict[str, Any], reasons: Sequence[str]) -> dict[str, Any]:
    """The operation with the reasons in words and, as `x-refusals`, for programs."""
    if not reasons:
        return operation
    response = operation["responses"]["4XX"]
    listed = "".join(f"\n- {reason}" for reason in reasons)
    about = f"{response['description']} A request that fits its schema is refused with 422 if:\n{listed}"
    refused = {**response, "description": about, "x-refusals": list(reasons)}
    return {**operation, "responses": {**operation["responses"], "4XX": refused}}


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
