import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.call_templates import TEMPLATES, Template
from nat.backend.words.calls import Call
from nat.backend.words.choice import FOLLOWING, HERMES, PRECEDING, choose
from nat.backend.words.reader import AnswerReader, CallStatus
from nat.backend.words.samples import answer, calling

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "brief": {"type": "boolean"},
                    "where": {"type": "object"},
                    "tags": {"type": ["array", "null"]},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]
FORMATS = {name: choose(Template(source), source).format for name, source in TEMPLATES.items()}
CODER = FORMATS["coder"]


def read(words, pieces, *, tools=TOOLS, **options):
    reader = AnswerReader(words, tools=tools, **options)
    content, reasoning, calls = "", "", []
    for piece in [*(reader.push(text) for text in pieces), reader.finish()]:
        content, reasoning = content + piece.content, reasoning + piece.reasoning
        calls += piece.calls
    return content, reasoning, [(call.name, json.loads(call.arguments)) for call in calls], reader.lost


def call(**arguments):
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function=weather>\n{parameters}</function>\n</tool_call>"


def hermes(arguments, name="weather"):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_arguments_have_the_types_of_the_schema():
    """Tags hold text only, in JSON or in Python's spelling; the tool's schema says what it is."""
    text = call(city="7", days="3.0", brief="True", where="{'x': [None, 1]}", tags="null")
    _, _, calls, _ = read(CODER, [text])
    assert calls == [("weather", {"city": "7", "days": 3, "brief": True, "where": {"x": [None, 1]}, "tags": None})]


@pytest.mark.parametrize("end", range(len("<tool_call>\n<function=weather>"), len(call(city="Bern", days="2")) - 1))
def test_a_call_that_was_cut_is_content(end):
    """A call that is not closed never runs, with fewer arguments or none; its text is kept."""
    text = call(city="Bern", days="2")[:end]
    content, _, calls, lost = read(CODER, [text])
    assert (content, calls) == (text, [])
    assert lost == [CallStatus.UNCLOSED]


@pytest.mark.parametrize(
    "text",
    [
        hermes('{"city": }'),
        hermes("[1]"),
        hermes('"city"'),
        hermes("[" * 100_000),
        hermes("1" + "0" * 5000),
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "weather", "args": {}}</tool_call>',
        "<tool_call>[]</tool_call>",
        "<tool_call>7</tool_call>",
    ],
)
def test_a_malformed_call_is_content(text):
    """What is no call stays in the answer, and the text after it is read on."""
    content, _, calls, lost = read(HERMES, [f"A{text}B{hermes('{}')}"])
    assert (content, calls) == (f"A{text}B", [("weather", {})])
    assert lost == [CallStatus.MALFORMED]


@pytest.mark.parametrize(
    "text",
    [
        call(city="Bern", days="2").replace("</parameter>", "", 1),
        call(city="Bern", days="2").replace("<parameter=days>", "<parameter days>"),
        call(city="Bern", days="2").replace("=city", ""),
    ],
)
def test_tags_that_are_not_closed_are_content(text):
    """An argument never takes in the next one, and none is left out."""
    content, _, calls, lost = read(CODER, [text])
    assert (content, calls) == (text, [])
    assert lost == [CallStatus.MALFORMED]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_call_of_a_tool_that_was_not_offered_is_passed_on(name):
    """The agent can tell the model; a valid call in the same block is one, too, and only the other is reported."""
    made = [("format_disk", {"city": "c"}), ("weather", {"city": "Bern"})]
    try:
        text = answer(Template(TEMPLATES[name]), calling(*made)).text
    except ValueError:  # the template takes one call
        text = answer(Template(TEMPLATES[name]), calling(made[0])).text
    _, _, calls, lost = read(FORMATS[name], [text])
    assert calls == [each for each in made if each[0] in text]
    assert lost == [CallStatus.UNKNOWN_TOOL]


def test_an_answer_as_json_is_no_call_of_an_unknown_tool():
    """Where calls have no marks, an object with a name alone may be the answer; without tools any name counts."""
    content, _, calls, lost = read(FORMATS["llama"], ['{"name": "Ann"}<|eot_id|>'])
    assert (content, calls, lost) == ('{"name": "Ann"}', [], [CallStatus.UNKNOWN_TOOL])
    assert read(HERMES, [hermes("{}", name="format_disk")], tools=None)[2:] == ([("format_disk", {})], [])


def test_a_call_inside_thinking_is_thinking():
    """Calls that a model only thinks about do not run."""
    content, reasoning, calls, lost = read(FORMATS["hermes"], [f"<think>\nShall I {hermes('{}')}?\n</think>\n\nNo."])
    assert (content, reasoning) == ("No.", f"Shall I {hermes('{}')}?\n")
    assert (calls, lost) == ([], [])


def test_a_prompt_may_open_the_thinking():
    """If the prompt ends with the mark of thinking, the answer begins inside it."""
    words = FORMATS["hermes"]
    prefix = words.prefix("<|im_start|>assistant\n<think>\n")
    assert read(words, ["Hm.", "</think>Yes."], prefix=prefix)[:2] == ("Yes.", "Hm.")
    assert words.prefix("<|im_start|>assistant\n<think>\n\n</think>\n\n") == ""


def test_text_is_read_on_after_a_section_of_calls():
    """Marks around calls are no content, unless the call is none."""
    words = FORMATS["kimi"]
    section = "<|calls_begin|><|call_begin|>functions.{}:0<|arguments|>{{}}<|call_end|><|calls_end|>"
    assert read(words, ["A", section.format("weather")])[0] == "A"
    lost = section.format("weather").replace("{}", "(")
    assert read(words, ["A", lost])[0] == "A" + lost.removesuffix("<|calls_end|>")


def test_a_call_needs_no_arguments():
    """Arguments that are missing or already text are accepted, under either of their names."""
    reader = AnswerReader(HERMES)
    block = "<tool_call>{}</tool_call>"
    assert reader.push(block.format('{"name": "f"}')).calls == [Call("f", "{}")]
    assert reader.push(block.format('{"name": "f", "arguments": "{}"}')).calls == [Call("f", "{}")]
    assert reader.push(block.format('{"name": "f", "parameters": {"x": 1}}')).calls == [Call("f", '{"x": 1}')]


FAMILY_CALLS = {
    "gpt-oss": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
    '<|constrain|>json<|message|>{"city": "Bern"}<|call|>',
    "LFM2": '<|tool_call_start|>[weather(city="Bern")]<|tool_call_end|><|im_end|>',
    "Granite 3": '<|tool_call|>[{"name": "weather", "arguments": {"city": "Bern"}}]<|end_of_text|>',
}


@pytest.mark.parametrize("family", [*PRECEDING.values(), *FOLLOWING.values()], ids=lambda family: family.origin)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_the_registry_reads_what_its_models_write(family, size):
    """Each family of the registry reads a call as its models write it."""
    text = FAMILY_CALLS[family.origin]
    content, _, calls, _ = read(family, [text[at : at + size] for at in range(0, len(text), size)])
    assert (content, calls) == ("", [("weather", {"city": "Bern"})])


PIECES = {
    name: [field.get(key) for field in words.template["fields"].values() for key in ("open", "close")]
    for name, words in FORMATS.items()
}
TEXTS = [
    hermes('{"city": "<Zürich>"}'),
    call(city="a < b"),
    "{",
    "}",
    "[",
    '{"name": "weather"',
    "weather",
    "\n",
    " a<",
]


@given(st.data(), st.sampled_from(sorted(FORMATS)))
def test_calls_do_not_depend_on_the_pieces(data, name):
    """However an answer is cut, it is read alike, also if it is nonsense in the format's own marks."""
    marks = [part for mark in PIECES[name] if mark for part in ([mark] if isinstance(mark, str) else mark)]
    text = "".join(data.draw(st.lists(st.sampled_from([*marks, *TEXTS]), max_size=8)))
    size = data.draw(st.sampled_from([1, 3, 7]))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert read(FORMATS[name], pieces) == read(FORMATS[name], [text])
