"""Objects parsed and described by a model: what is wrong is named, and the description is what is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import Meta, Struct

from contexture.answer.chat_types import ChatRequest
from contexture.answer.research import ResearchQuestion
from contexture.builders.command.request import CommandRequest
from contexture.builders.query.request import QueryRequest, SearchRequest
from contexture.builders.turn.request import Turn
from contexture.builders.workspace.request import ContextRequest
from contexture.errors import InvalidRequest
from contexture.filters import FilterField
from contexture.json_objects import JsonForm, object_schema, parse_object
from contexture.types import Equals

MODELS = (ChatRequest, CommandRequest, ContextRequest, QueryRequest, ResearchQuestion, SearchRequest, Turn)


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Place(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Where."""

    room_name: str
    floor: int = 0


def shout(value: object, at: str) -> str:
    """A parser of a field's own."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{at} cannot be shouted")
    return value.upper()


@dataclass(frozen=True, kw_only=True)
class Pump:
    """A pump.

    Pump(name="old")
    """

    name: Annotated[str, Meta(description="Its name.", examples=["old"])]
    count: Annotated[int, Meta(ge=1, le=9, description="How many.", examples=[2])] = 1
    colour: Colour | None = None
    place: Place | None = None
    word: Annotated[str, JsonForm(type=str, parse=shout)] = ""
    where: FilterField = None


def parse(data: Any) -> Pump:
    """The pump."""
    return parse_object(Pump, data, what="a pump")


def test_values_are_converted_and_null_is_not_said() -> None:
    """Nested objects, choices, filters and forms of their own become the model's values."""
    told = {
        "name": "old",
        "count": None,
        "colour": "red",
        "place": {"roomName": "cellar"},
        "word": "hey",
        "where": {"equals": ["lang", "ru"]},
    }
    expected = Pump(
        name="old", colour=Colour.RED, place=Place(room_name="cellar"), word="HEY", where=Equals("lang", "ru")
    )

    assert expected == parse(told)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "a pump must be an object, not list"),
        (None, "a pump must be an object, not null"),
        ({}, "field 'name' is missing"),
        ({"name": None}, "field 'name' is missing"),
        ({"name": 5}, "field 'name' must be a string"),
        ({"name": "x", "count": True}, "field 'count' must be a whole number"),
        ({"name": "x", "count": 2.5}, "field 'count' must be a whole number"),
        ({"name": "x", "count": 10.0}, "field 'count' must be a whole number"),
        ({"name": "x", "count": 1e400}, "field 'count' must be a whole number"),
        ({"name": "x", "count": "2"}, "field 'count' must be a whole number"),
        ({"name": "x", "count": 10}, "field 'count' must be a whole number <= 9"),
        ({"name": "x", "count": 10**30}, "field 'count' must be a whole number <= 9"),
        ({"name": "x", "colour": "green"}, "field 'colour' must be one of red, blue, not 'green'"),
        ({"name": "x", "place": 5}, "field 'place' must be an object"),
        ({"name": "x", "place": {}}, "field 'place.roomName' is missing"),
        ({"name": "x", "place": {"roomName": "a", "door": 1}}, "unknown field 'place.door'"),
        ({"name": "x", "place": {"roomName": 5}}, "field 'place.roomName' must be a string"),
        ({"name": "x", "word": 5}, "word cannot be shouted"),
        ({"name": "x", "where": {"like": []}}, "is not a filter"),
        ({"name": "x", "size": 1, "age": 2}, "unknown field 'age', 'size'; a pump has name, count, colour"),
        ({"count": 0, "size": 1}, "'name' is missing; field 'count' must be a whole number >= 1; unknown field 'size'"),
    ],
)
def test_what_is_wrong_is_named(data: object, said: str) -> None:
    """Every missing, unknown and wrong field, by its path."""
    with pytest.raises(InvalidRequest) as refused:
        parse(data)

    assert said in str(refused.value)


def test_a_whole_number_may_have_a_decimal_point() -> None:
    """JSON has one type of number, and its schema calls 2.0 an integer; also inside of objects."""
    place = {"roomName": "cellar", "floor": -1.0}

    assert Pump(name="x", count=2, place=Place(room_name="cellar", floor=-1)) == parse(
        {"name": "x", "count": 2.0, "place": place}
    )


def test_fields_may_be_withheld() -> None:
    """What is left out is neither described nor accepted."""
    schema = object_schema(Pump, name="SmallPump", without=("where", "count"))

    assert ("SmallPump", {"name": "old"}) == (schema["title"], schema["examples"][0])
    assert not {"where", "count"} & schema["properties"].keys()
    with pytest.raises(InvalidRequest, match="unknown field 'count'"):
        parse_object(Pump, {"name": "x", "count": 1}, what="a pump", without=("count",))


def test_the_first_sentence_of_a_model_describes_it() -> None:
    """Examples in Python are for Python."""
    assert "A pump." == object_schema(Pump)["description"]


@pytest.mark.parametrize("model", MODELS)
def test_a_request_describes_every_field_and_accepts_its_example(model: type) -> None:
    """The schema is valid, the example fits it, and the parser reads the example."""
    schema = object_schema(model)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(schema["examples"][0])

    assert all(each.get("description") for each in schema["properties"].values())
    assert isinstance(parse_object(model, schema["examples"][0], what="it"), model)


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ({"and": [{"equals": ["a", 1]}, {"not": {"any": ["b", ["x", True]]}}]}, True),
        ({"range": ["time", {"gte": "2026-01-01", "lt": 5}]}, True),
        ({"contains": ["a", "x"]}, True),
        ({"or": [{"like": ["a", "x"]}]}, False),
        ({"equals": ["a"]}, False),
        ({"equals": ["a", None]}, False),
        ({"range": ["a", {"over": 5}]}, False),
        ({"and": [], "or": []}, False),
        ({}, False),
    ],
)
def test_filters_are_described_as_they_are_parsed(where: dict[str, Any], fits: bool) -> None:  # noqa: FBT001 - a table
    """What the schema of a filter accepts is what the parser accepts."""
    asked = {"query": "x", "where": where}
    valid = Draft202012Validator(object_schema(SearchRequest)).is_valid(asked)
    try:
        parse_object(SearchRequest, asked, what="a search")
        read = True
    except InvalidRequest:
        read = False

    assert (fits, fits) == (valid, read)
