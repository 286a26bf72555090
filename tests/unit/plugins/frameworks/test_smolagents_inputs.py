from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from nat.plugins.frameworks.smolagents_inputs import inputs_of


class Place(BaseModel):
    """Somewhere."""

    name: str


class Tree(BaseModel):
    """A model inside of itself."""

    branches: list["Tree"] = []


class Order(BaseModel):
    """All that a schema may hold."""

    count: int
    where: Place = Field(description="where to")
    size: float | None = None
    tree: Tree


def test_each_input_has_a_type_and_a_description() -> None:
    """A tool whose inputs lack one is refused; a field's title stands in for the description."""
    inputs = inputs_of(Order.model_json_schema())
    assert inputs["count"] == {"title": "Count", "type": "integer", "description": "Count"}
    assert inputs["where"]["description"] == "where to"
    assert all({"type", "description"} <= set(told) for told in inputs.values())


def test_what_may_be_left_out_is_nullable() -> None:
    """It is how smolagents says that an input is not required."""
    inputs = inputs_of(Order.model_json_schema())
    assert [name for name, told in inputs.items() if told.get("nullable")] == ["size"]
    assert inputs["size"]["type"] == "any"


def test_references_are_written_out() -> None:
    """The definitions of a schema do not reach the model, so nothing may refer to them."""
    where = inputs_of(Order.model_json_schema())["where"]
    assert where["type"] == "object"
    assert where["properties"] == {"name": {"title": "Name", "type": "string"}}


def test_a_model_inside_of_itself_ends() -> None:
    """Written out once; below, it is any object."""
    branches = inputs_of(Order.model_json_schema())["tree"]["properties"]["branches"]
    assert branches["items"] == {"type": "object"}


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True).map("x".__add__),
        st.sampled_from([int, str, bool, list[int], Place]),
    )
)
def test_every_argument_is_an_input(fields: dict[str, Any]) -> None:
    """None is lost and none is made up, in their order."""
    model = create_model("Arguments", **{name: (kind, ...) for name, kind in fields.items()})
    inputs = inputs_of(model.model_json_schema())
    assert list(inputs) == list(fields)
    assert "$ref" not in str(inputs)
