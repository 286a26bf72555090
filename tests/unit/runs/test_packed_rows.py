from hypothesis import given
from hypothesis import strategies as st

from fakes.training_rows import row_of
from nat.runs.packed_rows import pack_rows, unpack_rows

IDS = st.integers(min_value=0, max_value=2**31 - 1)
LOGPROBS = st.none() | st.floats(-1e5, 0) | st.floats(-1e5, 0, width=32)


@given(st.lists(st.lists(st.tuples(IDS, LOGPROBS), min_size=1), max_size=3), IDS)
def test_rows_are_unpacked_as_they_were(rows, first):
    """Token ids, log probabilities of any precision and tokens without one are unchanged."""
    given_rows = [row_of([first, *(i for i, _ in row)], [None, *(value for _, value in row)]) for row in rows]
    assert unpack_rows(pack_rows(given_rows)) == given_rows


def test_float32_log_probabilities_take_at_most_8_bytes_per_token():
    """A sampled token is 4 bytes of id and 4 of log probability; compression only takes away."""
    size = 16_000
    row = row_of([7919 * i % 150_000 for i in range(size)], [None, *[-0.75] * (size - 1)])
    assert len(pack_rows([row])) <= 8 * size
