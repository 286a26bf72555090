"""Random chat conversations with tools, as hypothesis strategies."""

import json
from typing import Any

from hypothesis import strategies as st

from nat.gateway.dialects.answer_parts import chat_call

texts = st.text(min_size=1, max_size=12)
_values = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | texts
objects = st.dictionaries(texts, _values | st.lists(_values, max_size=2), max_size=3)


@st.composite
def arguments(draw: st.DrawFn) -> str:
    """JSON of an object as a model may write it, with any white space and escapes."""
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :  ")]))
    blank = draw(st.sampled_from(["", " ", "\n"]))
    ascii_only = draw(st.booleans())
    return blank + json.dumps(draw(objects), separators=(comma, colon), ensure_ascii=ascii_only) + blank


@st.composite
def answers(draw: st.DrawFn, prefix: str = "") -> dict[str, Any]:
    """An assistant message with at least one of thinking, text and calls."""
    calls = [
        chat_call(f"call_{prefix}{number}", draw(st.sampled_from(["look", "write_file"])), draw(arguments()))
        for number in range(draw(st.integers(0, 3)))
    ]
    message: dict[str, Any] = {"role": "assistant", "content": draw(texts if not calls else texts | st.none())}
    if calls:
        message["tool_calls"] = calls
    if draw(st.booleans()):
        message[draw(st.sampled_from(["reasoning_content", "reasoning"]))] = draw(texts)
    return message


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Chat messages that end with an answer; each call has its result, each other answer a question."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": draw(texts)}]
    for turn in range(draw(st.integers(1, 3))):
        message = draw(answers(f"{turn}_"))
        messages.append(message)
        calls = message.get("tool_calls", ())
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": draw(texts)} for call in calls]
        if not calls or draw(st.booleans()):
            messages.append({"role": "user", "content": draw(texts)})
    return [*messages, draw(answers("last_"))]


@st.composite
def cuts(draw: st.DrawFn) -> Any:
    """A function that cuts a text into pieces of one size."""
    size = draw(st.integers(1, 9))
    return lambda text: [text[start : start + size] for start in range(0, len(text), size)]
