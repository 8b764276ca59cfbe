"""Results and their JSON: `to_dict()` of any result is the object that the service sends."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeAlias, cast, get_type_hints

import msgspec
from msgspec import inspect

JsonSchema: TypeAlias = dict[str, Any]

ANY_JSON: JsonSchema = {
    "description": "Any JSON.",
    "type": ["string", "number", "boolean", "object", "array", "null"],
    "items": {},  # code generators read no arrays without it
}
"""The schema of a value that may be any JSON."""

FreeJson: TypeAlias = Annotated[
    Mapping[str, Any],
    msgspec.Meta(
        description="Free JSON: any fields, as whoever wrote them chose.",
        extra_json_schema={"additionalProperties": ANY_JSON},
    ),
]
"""An object without a schema, because its fields are not ours."""

Timestamp: TypeAlias = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""A time with a zone; msgspec says so itself only where it would refuse one without."""

Digest: TypeAlias = Annotated[str, msgspec.Meta(description="SHA-256 of the messages.")]


def encode_json(answer: object) -> bytes:
    """Encode one JSON document; equal values give equal bytes."""
    return msgspec.json.encode(answer, enc_hook=str)


class JsonResult:
    """Base of all results: `json.dumps(result.to_dict())` works.

    A FastAPI route may return the result itself if it declares its return type; without one, FastAPI would encode the
    fields of the dataclass instead.

    A subclass defines `json_form`, whose return type is the one description of its fields: the service sends it, and
    OpenAPI is derived from it.
    """

    __slots__ = ()

    def json_form(self) -> object:
        """The fields to send, by name; the values may be any that msgspec encodes."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service sends, of plain dicts, lists, texts, numbers, booleans and None."""
        return msgspec.json.decode(encode_json(self.json_form()), type=dict[str, Any])

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Let pydantic serialize a result with `to_dict`; pydantic is imported only if it asks."""
        del source, handler
        from pydantic_core import core_schema

        plain = core_schema.plain_serializer_function_ser_schema(cls.to_dict)
        return core_schema.is_instance_schema(cls, serialization=plain)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> JsonSchema:
        """Describe the result to pydantic, with every type written out in place."""
        del schema, handler
        (shape,), types = describe_types([get_type_hints(cls.json_form)["return"]])
        return cast("JsonSchema", _inline_types(shape, types))


REF_PREFIX = "#/components/schemas/"


def refer_to(kind: type) -> JsonSchema:
    """A reference to the schema of a type; the forms of results are published without `Json` in their names."""
    return {"$ref": REF_PREFIX + _publish_name(kind.__name__)}


def describe_types(
    kinds: Sequence[Any], unions: Mapping[type, Sequence[type]] | None = None
) -> tuple[list[JsonSchema], dict[str, JsonSchema]]:
    """JSON Schemas of types that are sent, and the schemas of the types that they name.

    What is sent has all of its fields and no others, except those that a `TypedDict` marks as not required. `unions`
    are the members of types that msgspec knows nothing of, such as protocols; without them they are free objects.
    """
    known = unions or {}
    described = [*kinds, *(member for members in known.values() for member in members)]
    shapes, types = msgspec.json.schema_components(
        described, schema_hook=_describe_unions(known), ref_template=REF_PREFIX + "{name}"
    )
    classes: dict[str, _ClassInfo] = {}
    for info in inspect.multi_type_info(described):
        _collect_classes(info, classes)
    closed = {**types, **{name: _close_object(types[name], classes[name]) for name in classes}}
    found = {_publish_name(name): _tidy_schema(schema) for name, schema in closed.items()}
    return [_tidy_schema(shape) for shape in shapes[: len(kinds)]], found


_ClassInfo: TypeAlias = inspect.StructType | inspect.DataclassType | inspect.TypedDictType


def _publish_name(name: str) -> str:
    return name.removesuffix("Json")


def _describe_unions(unions: Mapping[type, Sequence[type]]) -> Callable[[type], JsonSchema]:
    def describe(kind: type) -> JsonSchema:
        if kind in unions:
            return {"oneOf": [refer_to(member) for member in unions[kind]]}
        return {"type": "object", "description": kind.__doc__ or "", "additionalProperties": ANY_JSON}

    return describe


def _collect_classes(info: inspect.Type, found: dict[str, _ClassInfo]) -> None:
    """Collect every class with fields that a type leads to, by name."""
    match info:
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            if info.cls.__name__ in found:
                return
            found[info.cls.__name__] = info
            below = [field.type for field in info.fields]
        case inspect.Metadata():
            below = [info.type]
        case inspect.UnionType():
            below = info.types
        case inspect.DictType():
            below = [info.value_type]
        case inspect.TupleType():
            below = info.item_types
        case inspect.CollectionType():
            below = [info.item_type]
        case _:
            below = []
    for each in below:
        _collect_classes(each, found)


def _close_object(schema: JsonSchema, info: _ClassInfo) -> JsonSchema:
    """The schema of a class with the fields that are always sent as required, and no others allowed.

    A `TypedDict` says itself what is required; one that is not total may have further fields.
    """
    if isinstance(info, inspect.TypedDictType) and not getattr(info.cls, "__total__", True):
        return schema
    omits = isinstance(info, inspect.TypedDictType) or (
        isinstance(info, inspect.StructType) and info.cls.__struct_config__.omit_defaults
    )
    needed = {field.encode_name for field in info.fields if field.required or not omits}
    # msgspec sorts the fields of a `TypedDict` by name
    names = info.cls.__annotations__ if isinstance(info, inspect.TypedDictType) else schema["properties"]
    fields = {
        name: {said: value for said, value in schema["properties"][name].items() if said != "default"} for name in names
    }
    required = [name for name in fields if name in needed]
    return {**schema, "properties": fields, "required": required, "additionalProperties": False}


def _tidy_schema(schema: Any) -> Any:
    """A schema with published names, and of each docstring the first paragraph: the rest is for Python."""
    if isinstance(schema, list):
        return [_tidy_schema(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    said = {name: _tidy_schema(part) for name, part in cast("JsonSchema", schema).items()}
    for name in ("$ref", "title"):
        if isinstance(said.get(name), str):
            said[name] = _publish_name(said[name])
    if isinstance(said.get("description"), str):
        said["description"] = " ".join(said["description"].partition("\n\n")[0].split())
    if said.get("items") is False:  # a tuple of one type; code generators read no `prefixItems`
        said["items"] = said.pop("prefixItems")[0]
    return {"$ref": said["$ref"]} if "$ref" in said else said


def _inline_types(shape: object, types: Mapping[str, JsonSchema]) -> object:
    """A schema with every reference replaced by what it refers to; no type of a result leads back to itself."""
    if isinstance(shape, list):
        return [_inline_types(each, types) for each in cast("list[object]", shape)]
    if not isinstance(shape, dict):
        return shape
    said = cast("JsonSchema", shape)
    if "$ref" in said:
        said = types.get(str(said["$ref"]).removeprefix(REF_PREFIX), {"type": "object"})
    return {name: _inline_types(value, types) for name, value in said.items()}
