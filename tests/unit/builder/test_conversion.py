from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from nat.builder.conversion import GlobalTypeConverter, TypeConverter
from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.data_models.api_server import ChatRequest, ChatRequestOrMessage, ChatResponse, ChatResponseChunk, Usage
from nat.data_models.function import EmptyFunctionConfig


class Opaque:
    """A type that pydantic cannot validate."""


def test_own_converters_come_before_the_parents():
    """A function's converter wins over the global one, which handles all other types."""

    def parents(value: int) -> str:
        return "parent"

    def own(value: int) -> str:
        return "own"

    def floats(value: float) -> str:
        return "float"

    parent = TypeConverter([parents, floats])
    assert TypeConverter([own], parent=parent).convert(1, str) == "own"
    assert TypeConverter([own], parent=parent).convert(1.5, str) == "float"


def test_a_missing_converter_is_a_type_error():
    """The error names the type."""
    with pytest.raises(TypeError, match=r"3 \(int\) cannot be converted to Opaque, and no converter"):
        TypeConverter().convert(3, Opaque)
    assert TypeConverter().try_convert(3, Opaque) == 3


def test_a_bool_is_no_number():
    """True is not converted to the number 1 or to text implicitly."""
    value = True
    assert TypeConverter().convert(value, str) == "True"
    assert TypeConverter().convert(value, bool) is True


def test_the_global_converter_is_shared():
    """A converter that a plug-in registers applies everywhere."""

    class Meters(float):
        pass

    def meters(value: str) -> Meters:
        return Meters(value.removesuffix("m"))

    GlobalTypeConverter.register_converter(meters)
    assert GlobalTypeConverter.convert("3m", Meters) == 3
    assert GlobalTypeConverter.get().try_convert("4m", Meters) == 4


TALK = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": [{"type": "text", "text": "what"}, {"type": "text", "text": "now"}]},
    {"role": "assistant", "content": "wait"},
]


async def echo(request: ChatRequest) -> ChatResponse:
    return ChatResponse.from_string(f"{len(request.messages)}: {request.text}", model="m")


def function(fn):
    return LambdaFunction(config=EmptyFunctionConfig(), info=FunctionInfo.from_fn(fn))


async def test_a_chat_workflow_can_be_called_with_a_text():
    """A text becomes a conversation of one user message, and a caller for text gets the answer's text."""
    assert await function(echo).ainvoke("hello", to_type=str) == "1: hello"
    whole = await function(echo).ainvoke({"messages": TALK, "seed": 7})
    assert whole.text == "3: what\nnow"


async def test_either_form_reaches_the_workflow():
    """`ChatRequestOrMessage` accepts a conversation or a text, and refuses both and neither."""

    async def either(request: ChatRequestOrMessage) -> str:
        return request.request.text

    assert await function(either).ainvoke({"messages": TALK}) == "what\nnow"
    assert await function(either).ainvoke({"input_message": "hello"}) == "hello"
    assert await function(either).ainvoke("hello") == "hello"
    for wrong in ({}, {"messages": TALK, "input_message": "x"}):
        with pytest.raises(ValidationError, match="either messages or input_message"):
            ChatRequestOrMessage.model_validate(wrong)


def test_answers_take_the_arguments_of_upstream():
    """Workflows of plug-ins may give every field of the envelope, the reason of the end and the usage."""
    given = {"id_": "1", "created": datetime.fromtimestamp(9, UTC), "model": "m"}
    head = {"id": "1", "created": 9, "model": "m"}
    whole = ChatResponse.from_string("yes", object_="chat", usage=Usage(total_tokens=3), **given).model_dump()
    chunk = ChatResponseChunk.from_string("ye", object_="piece", finish_reason="length", **given).model_dump()
    last = ChatResponseChunk.create_streaming_chunk(
        "s", role="assistant", finish_reason="stop", usage=Usage(total_tokens=3), system_fingerprint="f", **given
    ).model_dump()
    assert head.items() | {("object", "chat")} <= _flat(whole).items()
    assert head.items() | {("object", "piece")} <= _flat(chunk).items()
    assert head.items() | {("object", "chat.completion.chunk"), ("system_fingerprint", "f")} <= _flat(last).items()
    assert [each["usage"] and each["usage"]["total_tokens"] for each in (whole, chunk, last)] == [3, None, 3]
    assert chunk["choices"] == [
        {"delta": {"content": "ye", "role": "assistant"}, "finish_reason": "length", "index": 0}
    ]
    assert last["choices"] == [{"delta": {"content": "s", "role": "assistant"}, "finish_reason": "stop", "index": 0}]


def _flat(dumped):
    return {name: value for name, value in dumped.items() if isinstance(value, str | int)}


@pytest.mark.parametrize(
    ("value", "to_type", "wanted"),
    [
        (ChatRequestOrMessage(input_message="hi"), str, "hi"),
        (ChatRequestOrMessage(input_message="hi"), ChatRequest, ChatRequest.from_string("hi")),
        (ChatResponseChunk.from_string("ye"), str, "ye"),
        (ChatRequest.from_string("hi"), str, "hi"),
    ],
)
def test_the_global_converters(value, to_type, wanted):
    """The listed converters are available in the whole process."""
    assert GlobalTypeConverter.convert(value, to_type) == wanted
