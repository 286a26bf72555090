from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from nat.plugins.frameworks.smolagents_inputs import inputs_of


class Place(BaseModel):
    """Somewhere."""

    name: str


class Tree(BaseModel):
    """A recursive model."""

    branches: list["Tree"] = []


class Order(BaseModel):
    """A model with every kind of field."""

    count: int
    where: Place = Field(description="where to")
    size: float | None = None
    tree: Tree


def test_each_input_has_a_type_and_a_description() -> None:
    """Smolagents refuses inputs without them; a field's title replaces a missing description."""
    inputs = inputs_of(Order.model_json_schema())
    assert inputs["count"] == {"title": "Count", "type": "integer", "description": "Count"}
    assert inputs["where"]["description"] == "where to"
    assert all({"type", "description"} <= set(told) for told in inputs.values())


def test_optional_inputs_are_nullable() -> None:
    """Smolagents marks an optional input as nullable."""
    inputs = inputs_of(Order.model_json_schema())
    assert [name for name, told in inputs.items() if told.get("nullable")] == ["size"]
    assert inputs["size"]["type"] == "any"


def test_references_are_inlined() -> None:
    """The model does not get a schema's definitions, so no input may refer to them."""
    where = inputs_of(Order.model_json_schema())["where"]
    assert where["type"] == "object"
    assert where["properties"] == {"name": {"title": "Name", "type": "string"}}


def test_a_recursive_model_is_inlined_once() -> None:
    """Below its first level, the model is any object."""
    branches = inputs_of(Order.model_json_schema())["tree"]["properties"]["branches"]
    assert branches["items"] == {"type": "object"}


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True).map("x".__add__),
        st.sampled_from([int, str, bool, list[int], Place]),
    )
)
def test_every_argument_is_an_input(fields: dict[str, Any]) -> None:
    """Inputs are exactly the arguments, in their order."""
    model = create_model("Arguments", **{name: (kind, ...) for name, kind in fields.items()})
    inputs = inputs_of(model.model_json_schema())
    assert list(inputs) == list(fields)
    assert "$ref" not in str(inputs)
