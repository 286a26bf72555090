from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from nat.expected import expected, number_advice


class Settings(BaseModel):
    share: float = Field(default=0.5, ge=0, le=1)
    count: Annotated[int, Field(ge=1)] | None = 1
    rate: float = Field(default=1, gt=0, le=1e15, allow_inf_nan=False)
    word: Literal["a", "b"] | None = None
    names: list[str] = []
    url: str = Field(default="http://x", pattern=r"^https?://\S+$")
    inner: "Settings | None" = None


ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()))


@given(key=st.sampled_from(sorted(Settings.model_fields)), value=ANYTHING)
def test_pydantic_is_not_heard(key: str, value: Any):
    """No message has the words of a library or the name of one of our classes."""
    try:
        Settings.model_validate({key: value})
    except ValidationError as error:
        for detail in error.errors():
            text = expected(detail, Settings.model_fields[key])
            assert text.startswith("expected ")
            assert not any(word in text for word in ("Input", "valid", "dictionary", "instance", "class", "parse"))


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("share", 2, "expected a number from 0 to 1"),
        ("count", 0, "expected a whole number of at least 1"),
        ("count", "many", "expected a whole number of at least 1"),
        ("rate", 0, "expected a number above 0"),
        ("word", "c", "expected 'a' or 'b'"),
        ("names", "x", "expected a list"),
        ("url", "localhost", "expected a URL that begins with http:// or https://"),
        ("inner", 3, "expected a mapping of keys to values"),
    ],
)
def test_the_whole_range_of_a_field_is_told(key, value, text):
    """Both bounds are told whichever was crossed, and also where the value is no number."""
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate({key: value})
    assert expected(raised.value.errors()[0], Settings.model_fields[key]) == text


def test_without_the_field_the_bound_that_was_crossed_is_told():
    """A message about a request's body has no field at hand."""
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate({"share": -1})
    assert expected(raised.value.errors()[0]) == "expected a number of at least 0"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("50%", "; write 0.5"),
        ("4,096", "; write 4096"),
        ("1 000 000", "; write 1000000"),
        ("30s", "; write 30 without a unit"),
        ("1.5 GB", "; write 1.5 without a unit"),
        ("many", ""),
        ("1,5", ""),
    ],
)
def test_numbers_for_people_are_written_for_programs(text, advice):
    """Percent, separators of thousands and units; what may mean two numbers gets no advice."""
    assert number_advice(text) == advice
