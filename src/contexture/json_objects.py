"""Parses JSON objects into dataclasses and Structs, and describes them as JSON Schema.

A model declares each field once: its type is `Annotated` with `msgspec.Meta` for description, bounds and examples, and
with a `JsonForm` where its JSON is not what msgspec would read. A field that is null counts as not given.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import cleandoc
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from contexture.errors import InvalidRequest

T = TypeVar("T")

NOT_BLANK: dict[str, Any] = {"minLength": 1, "pattern": r"\S"}
"""Keywords of JSON Schema for a text that is not blank; what reads it says so in words of its own."""

_MAX_PROBLEMS = 5  # invalid fields named in one message
_MAX_VALUE = 80  # characters of an invalid value in a message
_DEFINITION = "#/$defs/{name}"
_FAILURE = re.compile(r"(?P<said>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?", re.DOTALL)
_IN_LIST = re.compile(r"(?:\[\d+\])?")
_WRONG_CHOICE = "Invalid enum value "
_EXPECTED = re.compile(r"Expected `([^`]*)`(?:, got `.*)?", re.DOTALL)
_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "a time",
}
_INNER = {
    "Object contains unknown field": "unknown field {!r}",
    "Object missing required field": "field {!r} is missing",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonForm:
    """How a field looks in JSON, and the parser that reads it.

    `parse` takes the value and the name of the field, and raises `InvalidRequest`. The form is described by a type, or
    by a schema of its own, whose references `#/$defs/NAME` are in `definitions`.
    """

    parse: Callable[[Any, str], Any]
    type: Any = None
    schema: Mapping[str, Any] | None = None
    definitions: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Field:
    """A field of a model: its name in Python and in JSON, its type, and its own form if it has one."""

    name: str
    key: str
    type: Any
    required: bool
    form: JsonForm | None
    meta: Meta

    def parse(self, value: object) -> Any:
        """Return the value of the field; raises `InvalidRequest`, naming it."""
        if self.form is not None:
            return self.form.parse(value, self.key)
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as failure:
            try:
                return msgspec.convert(read_whole_numbers(value), self.type)
            except msgspec.ValidationError:
                raise InvalidRequest(self._describe_failure(str(failure))) from failure

    def _describe_failure(self, failure: str) -> str:
        found = cast("re.Match[str]", _FAILURE.fullmatch(failure))
        said, path = found["said"], f"{self.key}{found['path'] or ''}"
        for start, words in _INNER.items():
            if said.startswith(start):
                return words.format(f"{path}.{said.removeprefix(start).strip(' `')}")
        if said.startswith("Expected"):
            return f"field {path!r} {_EXPECTED.sub(_name_expected, said)}"
        if said.startswith(_WRONG_CHOICE) and _IN_LIST.fullmatch(found["path"] or ""):
            choices = ", ".join(_list_choices(self.type))
            return f"field {path!r} must be one of {choices}, not {_cut(said.removeprefix(_WRONG_CHOICE))}"
        return f"field {path!r}: {_cut(said[:1].lower() + said[1:])}"


def parse_object(model: type[T], data: object, *, what: str, without: Collection[str] = ()) -> T:
    """Parse a JSON object; `what` is its name in messages, such as "a turn", and `without` are fields it may not have.

    Raises `InvalidRequest` naming every field that is missing, unknown or invalid.
    """
    if not isinstance(data, Mapping):
        raise InvalidRequest(f"{what} must be an object, not {'null' if data is None else type(data).__name__}")
    given = cast("Mapping[object, object]", data)
    known = {each.key: each for each in _model_fields(model) if each.key not in without}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, each in known.items():
        if (value := given.get(key)) is not None:
            try:
                values[each.name] = each.parse(value)
            except InvalidRequest as failure:
                problems.append(str(failure))
        elif each.required:
            problems.append(f"field {key!r} is missing")
    if unknown := sorted(str(name) for name in given if name not in known):
        problems.append(f"unknown field {', '.join(map(repr, unknown[:_MAX_PROBLEMS]))}; {what} has {', '.join(known)}")
    if problems:
        raise InvalidRequest(_join_problems(problems))
    return model(**values)


def read_whole_numbers(value: object) -> object:
    """Return a JSON value in which every number without a fraction is an `int`: JSON has one type of number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: read_whole_numbers(part) for name, part in cast("Mapping[object, object]", value).items()}
    return [read_whole_numbers(part) for part in cast("list[object]", value)] if isinstance(value, list) else value


def describe_problems(found: Sequence[Mapping[str, Any]]) -> str:
    """Describe what pydantic finds wrong with a request, field by field, without repeating values."""
    return _join_problems([_describe_problem(each) for each in found])


def _describe_problem(found: Mapping[str, Any]) -> str:
    where, message = ".".join(str(step) for step in found["loc"]), str(found["msg"])
    if found["type"] == "extra_forbidden":
        return f"unknown field {where!r}"
    if found["type"] == "missing":
        return f"field {where!r} is missing" if where else "the request has no body"
    return f"field {where!r}: {message[:1].lower()}{message[1:]}" if where else message


def object_schema(model: type, *, name: str = "", without: Collection[str] = ()) -> dict[str, Any]:
    """Describe the objects that `parse_object` accepts, as JSON Schema with `$defs` and an example.

    `name` is the title, which is otherwise the name of the model. The example consists of the examples of the fields.
    """
    known = [each for each in _model_fields(model) if each.key not in without]
    forms = [each.type if each.form is None else each.form.type for each in known]
    typed, definitions = msgspec.json.schema_components(
        [Any if form is None else form for form in forms], ref_template=_DEFINITION
    )
    found = dict[str, Any](definitions)
    properties: dict[str, Any] = {}
    for each, schema in zip(known, typed, strict=True):
        if each.form is not None:
            found |= each.form.definitions
            schema = dict(each.form.schema or schema)  # noqa: PLW2901 - its own form replaces it
        properties[each.key] = _describe_property(each, dict(schema))
    example = {each.key: each.meta.examples[0] for each in known if each.meta.examples}
    return {
        "title": name or model.__name__,
        "description": _first_paragraph(model.__doc__ or ""),
        "type": "object",
        "properties": properties,
        "required": [each.key for each in known if each.required],
        "additionalProperties": False,
        "examples": [example],
        "$defs": {key: _shorten_description(schema) for key, schema in found.items()},
    }


def rename_references(schema: Any, change: Callable[[str], str]) -> Any:
    """Return a schema in which every `$ref` is replaced by what `change` makes of it."""
    if isinstance(schema, Mapping):
        held = cast("Mapping[str, Any]", schema)
        return {
            key: change(part) if key == "$ref" and isinstance(part, str) else rename_references(part, change)
            for key, part in held.items()
        }
    return (
        [rename_references(part, change) for part in cast("list[Any]", schema)] if isinstance(schema, list) else schema
    )


@cache
def _model_fields(model: type) -> tuple[_Field, ...]:
    if is_dataclass(model):
        hints = get_type_hints(model, include_extras=True)
        return tuple(
            _make_field(
                each.name, each.name, hints[each.name], required=each.default is each.default_factory is MISSING
            )
            for each in fields(model)
        )
    return tuple(
        _make_field(each.name, each.encode_name, each.type, required=each.required)
        for each in msgspec.structs.fields(cast("type[msgspec.Struct]", model))
    )


def _make_field(name: str, key: str, kind: Any, *, required: bool) -> _Field:
    notes: Sequence[Any] = kind.__metadata__ if get_origin(kind) is Annotated else ()
    return _Field(
        name=name,
        key=key,
        type=kind,
        required=required,
        form=next((note for note in notes if isinstance(note, JsonForm)), None),
        meta=next((note for note in notes if isinstance(note, Meta)), Meta()),
    )


def _describe_property(each: _Field, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a property below its description; one that may be left out may also be null."""
    about = {"description": each.meta.description} if each.meta.description else {}
    bare = {key: part for key, part in schema.items() if key not in {"description", "examples", "default"}}
    if not each.required:
        choices: list[Any] = bare["anyOf"] if bare.keys() == {"anyOf"} else [bare]
        bare = {"anyOf": choices if {"type": "null"} in choices else [*choices, {"type": "null"}]}
    return {**about, **bare, **({"examples": each.meta.examples} if each.meta.examples else {})}


def _shorten_description(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with the first paragraph of its description: the rest of a docstring is for Python."""
    text = schema.get("description")
    return {**schema, "description": _first_paragraph(text)} if isinstance(text, str) else dict(schema)


def _first_paragraph(text: str) -> str:
    return " ".join(cleandoc(text).partition("\n\n")[0].split())


def _list_choices(kind: Any) -> list[str]:
    """The values that an enumeration or a `Literal` allows, wherever they stand in a type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    parts = get_args(kind)
    return (
        [str(part) for part in parts] if get_origin(kind) is Literal else [c for p in parts for c in _list_choices(p)]
    )


def _name_expected(found: re.Match[str]) -> str:
    """What msgspec expects in words of ours: "must be a string" for "Expected `str | null`, got `int`"."""
    names = [_TYPE_NAMES.get(name, name) for name in found[1].split(" | ") if name != "null"]
    return f"must be {' or '.join(names)}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


def _join_problems(problems: Sequence[str]) -> str:
    more = len(problems) - _MAX_PROBLEMS
    return "; ".join([*problems[:_MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])
