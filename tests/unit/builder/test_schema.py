"""A schema whose definitions are written out."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from nat.builder.schema import inlined

LEAVES = st.sampled_from([{"type": "integer"}, {"type": "string", "enum": ["a", "b"]}, {"$ref": "#/$defs/A"}])
PARTS = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, part),
        st.builds(lambda some: {"anyOf": some}, st.lists(part, min_size=1, max_size=3)),
        st.builds(lambda one, two: {"type": "object", "properties": {"x": one, "y": two}}, part, part),
        st.just({"$ref": "#/$defs/B"}),
    ),
    max_leaves=8,
)


class Place(BaseModel):
    city: str = Field(description="its name")


class Tree(BaseModel):
    below: list["Tree"] = []


class Trip(BaseModel):
    start: Place = Field(description="where it begins")
    stops: list[Place] = []
    plan: Tree | None = None
    days: int = 1


@given(a=PARTS, b=PARTS, part=PARTS)
def test_no_reference_is_left_and_it_ends(a: dict[str, Any], b: dict[str, Any], part: dict[str, Any]):
    """Whatever refers to whatever, itself included."""
    schema = {"properties": {"p": part}, "$defs": {"A": a, "B": b}}
    assert "$ref" not in json.dumps(inlined(schema))


@given(part=PARTS.filter(lambda part: "$ref" not in json.dumps(part)))
def test_what_refers_to_nothing_stays_as_it_is(part: dict[str, Any]):
    """A schema without references is its own."""
    assert inlined({"properties": {"p": part}}) == {"properties": {"p": part}}


def test_definitions_stand_where_they_are_used():
    """What is said beside a reference counts; a model inside of itself is any object there."""
    properties = inlined(Trip.model_json_schema())["properties"]
    city = {"description": "its name", "title": "City", "type": "string"}
    assert properties["start"]["properties"] == {"city": city}
    assert properties["start"]["description"] == "where it begins"
    assert properties["stops"]["items"]["properties"] == {"city": city}
    assert properties["plan"]["anyOf"][0]["properties"]["below"]["items"] == {"type": "object"}
    assert properties["days"] == {"default": 1, "title": "Days", "type": "integer"}


def test_a_model_that_holds_itself_has_its_properties():
    """Pydantic puts such a model among the definitions and refers to it, so that the schema itself has none."""
    assert inlined(Tree.model_json_schema())["properties"]["below"]["items"] == {"type": "object"}
