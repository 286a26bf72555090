from hypothesis import given
from hypothesis import strategies as st

from fakes.tiny_model import tiny_tokenizer
from nat.backend.inference.detokenizer import Detokenizer
from nat.backend.tokenizer import ChatTokenizer

TOKENIZER = ChatTokenizer(tiny_tokenizer())


def pieces(token_ids, stop=()):
    stream = Detokenizer(TOKENIZER, stop)
    taken = []
    for token_id in token_ids:
        stopped = stream.push(token_id)
        taken.append(stream.take())
        if stopped:
            break
    return [*taken, stream.finish()], stream


@given(st.text(max_size=80))
def test_the_pieces_are_the_text(text):
    """However tokens split characters, the pieces add up to the text and contain no partial character."""
    taken, stream = pieces(TOKENIZER.encode(text))
    assert "".join(taken) == text == stream.text
    assert all("\ufffd" not in part or "\ufffd" in text for part in taken)


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_text_ends_before_the_first_stop_string(text, stops):
    """The text ends before the first complete stop string, even across tokens; no part of it is shown."""
    taken, stream = pieces(TOKENIZER.encode(text), tuple(stops))
    ends = [
        min(text[:n].find(s) for s in stops if s in text[:n])
        for n in range(len(text) + 1)
        if any(s in text[:n] for s in stops)
    ]
    assert "".join(taken) == (text[: ends[0]] if ends else text)
    assert stream.stopped == bool(ends)
    assert text[ends[0] :].startswith(stream.stopped_by) if ends else stream.stopped_by is None
