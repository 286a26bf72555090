import pytest
from pydantic import BaseModel

from nat.eval.result_path import answer_of, compile_path


class Reply(BaseModel):
    move: int


@pytest.mark.parametrize("output", [Reply(move=3), {"move": 3}, '{"move": 3}'])
def test_a_path_finds_its_value_in_records_dicts_and_json_text(output):
    """However the workflow returns its record, the same path finds the same value."""
    assert answer_of(output, compile_path("$.move")) == 3


def test_json_that_cannot_be_read_is_text():
    """A model may say any depth and any number; the path finds nothing in it, as in other text."""
    for output in ("[" * 100_000, '{"move": 1' + "0" * 5000 + "}"):
        with pytest.raises(LookupError):
            answer_of(output, compile_path("$.move"))


def test_the_first_match_counts():
    """A path with several matches gives the first."""
    assert answer_of([{"m": 1}, {"m": 2}], compile_path("$[*].m")) == 1


def test_nothing_at_the_path_is_an_error_that_shows_the_output():
    """A missing answer is an error, not an empty answer."""
    with pytest.raises(LookupError, match="'plain text'"):
        answer_of("plain text", compile_path("$.move"))


def test_without_a_path_the_output_is_the_answer():
    """Text and values stay as they are; a record becomes its JSON text."""
    assert answer_of("0042", None) == "0042"
    assert answer_of({"a": 1}, None) == {"a": 1}
    assert answer_of(Reply(move=3), None) == '{\n  "move": 3\n}'


def test_a_text_that_is_no_path_is_refused():
    """The parser's words are kept."""
    with pytest.raises(ValueError, match=r"'\$\.a\[' is not a JSON path: Parse error"):
        compile_path("$.a[")
