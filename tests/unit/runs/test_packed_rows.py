import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.training_rows import row_of
from nat.runs.packed_rows import pack_rows, unpack_rows
from nat.wire.training import TrainingRow

IDS = st.integers(min_value=0, max_value=2**31 - 1)
LOGPROBS = st.none() | st.floats(-1e5, 0) | st.floats(-1e5, 0, width=32)


@given(st.lists(st.lists(st.tuples(IDS, LOGPROBS), min_size=1), max_size=3), IDS)
def test_rows_are_unpacked_as_they_were(rows, first):
    """Token ids, log probabilities of any precision and tokens without one are unchanged."""
    given_rows = [row_of([first, *(i for i, _ in row)], [None, *(value for _, value in row)]) for row in rows]
    assert unpack_rows(pack_rows(given_rows)) == given_rows


def test_the_rest_of_a_row_is_kept():
    """Returns, temperatures and policy versions of answers are part of a row."""
    row = row_of([1, 2, 2**40], [None, -0.5, -0.1], values=[1.5], temperatures=[0.7], versions=["m@4"])
    assert unpack_rows(pack_rows([row])) == [row]


def test_float32_log_probabilities_take_at_most_8_bytes_per_token():
    """A sampled token is 4 bytes of id and 4 of log probability; compression only takes away."""
    size = 16_000
    row = row_of([7919 * i % 150_000 for i in range(size)], [None, *[-0.75] * (size - 1)])
    assert len(pack_rows([row])) <= 8 * size


def test_ids_beyond_64_bits_are_not_packed():
    """No model has such an id, but a server may send one, and the journal must not fail."""
    assert pack_rows([row_of([1, 2**64], [None, -1.0])]) is None


@given(st.data())
def test_damage_is_one_kind_of_error(data):
    """A changed, missing or added byte gives other rows or a ValueError, never another error."""
    packed = pack_rows([row_of([1, 2, 3], [None, -0.5, -0.1])])
    place, byte = data.draw(st.integers(0, len(packed))), data.draw(st.binary(max_size=2))
    try:
        rows = unpack_rows(packed[:place] + byte + packed[place + 1 :])
    except ValueError:
        return
    assert all(type(row) is TrainingRow for row in rows)


@pytest.mark.parametrize(
    "head",
    [
        {"num_tokens": 10**30},
        {"num_tokens": 10**9},
        {"num_tokens": -1},
        {"num_tokens": 9},
        {"ids": "s"},
        {"ids": "0i"},
        {"logprobs": "P"},
    ],
)
def test_a_head_that_lies_is_refused(head):
    """Sizes and formats are checked before they are believed."""
    fields = {"num_tokens": 2, "ids": "i", "logprobs": "f", "returns": None, "temperatures": None} | head
    with pytest.raises(ValueError, match=r"damaged|should|pattern"):
        unpack_rows(zlib.compress(json.dumps([fields]).encode() + b"\n" + bytes(14)))


@pytest.mark.parametrize("packed", [b"", b"\x00\xff", bytes(100), "text", 5])
def test_what_is_not_packed_is_refused(packed):
    """A journal's column may hold anything."""
    with pytest.raises(ValueError, match=r"damaged|early"):
        unpack_rows(packed)


def test_a_few_bytes_cannot_become_gigabytes():
    """Unpacking stops at a size that no rollout has."""
    with pytest.raises(ValueError, match="have more than"):
        unpack_rows(zlib.compress(bytes(2**28 + 1), 9))
