"""Server-sent events are written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from nat.http.sse import DONE, EventReader, event

OBJECTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), min_size=1, max_size=3)


@given(st.lists(OBJECTS, max_size=4), st.data())
def test_events_are_read_as_written(written, data):
    """A stream may be cut into any pieces."""
    stream = b"".join(event(to_json(each), data.draw(st.sampled_from(["", "delta"]))) for each in written) + DONE
    reader, read = EventReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        piece, stream = stream[:size], stream[size:]
        read += reader.feed(piece)
    assert (read, reader.done) == (written, True)


@pytest.mark.parametrize("data", [b"[1]", b"{", b"null"])
def test_an_event_is_an_object(data):
    """Anything but an object is an error of the server that sent it."""
    with pytest.raises(ValueError, match=r"."):
        EventReader().feed(event(data))
