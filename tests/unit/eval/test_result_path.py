import pytest
from pydantic import BaseModel

from nat.eval.result_path import answer_of, compile_path


class Reply(BaseModel):
    move: int


@pytest.mark.parametrize("output", [Reply(move=3), {"move": 3}, '{"move": 3}'])
def test_a_path_finds_its_value_in_records_dicts_and_json_text(output):
    """The same path finds the value in a record, a dict or JSON text."""
    assert answer_of(output, compile_path("$.move")) == 3


def test_nothing_at_the_path_is_an_error_that_shows_the_output():
    """A missing answer is an error that shows the output, not an empty answer."""
    with pytest.raises(LookupError, match="'plain text'"):
        answer_of("plain text", compile_path("$.move"))


def test_without_a_path_the_output_is_the_answer():
    """Text and values are returned unchanged; a record becomes its JSON text."""
    assert answer_of("0042", None) == "0042"
    assert answer_of({"a": 1}, None) == {"a": 1}
    assert answer_of(Reply(move=3), None) == '{\n  "move": 3\n}'


def test_an_invalid_path_is_refused():
    """The error has the parser's message."""
    with pytest.raises(ValueError, match=r"'\$\.a\[' is not a JSON path: Parse error"):
        compile_path("$.a[")
