import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.server.tool_parser import HermesParser, ParsedCall

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "<ü>"}}\n</tool_call>'
PARSED = ParsedCall("f", '{"x": "<ü>"}')
PIECES = [
    CALL,
    "<tool_call>{broken</tool_call>",
    "<tool_call>",
    "</tool_call>",
    "<tool",
    "a < b",
    "\n",
    "<tool_call>[1]</tool_call>",
]


def parse(pieces, **options):
    parser = HermesParser(**options)
    content, calls = "", []
    for piece in pieces:
        more, new = parser.push(piece)
        content += more
        calls += new
    return content + parser.finish(), calls


def test_calls_and_content_are_separated():
    """Text before a call is content; blank text after a call is dropped."""
    assert parse([f"Adding.{CALL}\n{CALL}\n"]) == ("Adding.", [PARSED, PARSED])


def test_a_limit_drops_further_calls():
    """`parallel_tool_calls: false` keeps the first call."""
    assert parse([CALL + CALL], calls_wanted=1) == ("", [PARSED])


@pytest.mark.parametrize("inside", ["[" * 100_000, '{"name": "f", "arguments": 1' + "0" * 5000 + "}"])
def test_invalid_json_stays_content(inside):
    """JSON of any depth and with any number that cannot be parsed stays in the answer."""
    text = f"<tool_call>{inside}</tool_call>"
    parser = HermesParser()
    assert parser.push(text) == (text, [])


def test_arguments_may_be_absent_or_already_text():
    """Arguments that are missing or already text are accepted."""
    block = "<tool_call>{}</tool_call>"
    assert parse([block.format('{"name": "f"}')])[1] == [ParsedCall("f", "{}")]
    text = json.dumps({"name": "f", "arguments": "{}"})
    assert parse([block.format(text)])[1] == [ParsedCall("f", "{}")]


@given(st.lists(st.sampled_from(PIECES), max_size=6))
def test_text_without_calls_stays_content(pieces):
    """Text without a valid call is the content, unchanged."""
    text = "".join(pieces)
    content, calls = parse([text])
    if not calls:
        assert content == text


@given(st.lists(st.sampled_from(PIECES), max_size=6))
def test_calls_do_not_depend_on_the_chunks(pieces):
    """Character by character, the same calls and the same content are found."""
    text = "".join(pieces)
    assert parse(text) == parse([text])
