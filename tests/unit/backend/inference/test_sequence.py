import pytest

from fakes.tiny_model import tiny_tokenizer
from nat.backend.inference.detokenizer import Detokenizer
from nat.backend.inference.sequence import Delta, SamplingParams, Sequence
from nat.backend.tokenizer import ChatTokenizer

TOKENIZER = ChatTokenizer(tiny_tokenizer())
END = 10**6
"""Stands for the end of the text."""


def sampled(text, *, stop=(), max_tokens=99, ended=True):
    """A sequence that gets the text's tokens, and the end, until it has a finish reason."""
    params = SamplingParams(max_tokens=max_tokens, stop=tuple(stop))
    sequence = Sequence(0, [1], params, Detokenizer(TOKENIZER, params.stop) if stop else None)
    for token_id in [*TOKENIZER.encode(text), *([END] if ended else [])]:
        sequence.add(token_id, -0.5, [], {END})
        if sequence.finish_reason is not None:
            break
    return sequence


@pytest.mark.parametrize(
    ("options", "finish_reason", "stop_reason"),
    [
        ({}, "stop", None),
        ({"stop": ["the"]}, "stop", "the"),
        ({"stop": ["none"]}, "stop", None),
        ({"stop": ["none"], "max_tokens": 2}, "length", None),
        ({"stop": ["the"], "ended": False}, "stop", "the"),
        ({"ended": False}, None, None),
    ],
)
def test_what_ends_a_sequence_is_told(options, finish_reason, stop_reason):
    """The model's own end is no stop string, though the finish reason is the same."""
    sequence = sampled("a the b", **options)
    assert (sequence.finish_reason, sequence.stop_reason) == (finish_reason, stop_reason)


def test_a_delta_has_the_newest_tokens_and_the_rest_of_the_text():
    """Text that might have become a stop string is held back until the end."""
    sequence = sampled("a th", stop=["the"], ended=False)
    assert "th" not in Delta.newest(sequence).text
    sequence.add(END, -0.5, [], {END})
    last = Delta.newest(sequence)
    assert (last.token_ids, last.finish_reason) == ([END], "stop")
    assert last.text.endswith("th")
