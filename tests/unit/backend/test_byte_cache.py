"""A cache that is limited by its bytes."""

from hypothesis import given
from hypothesis import strategies as st

from nat.backend.byte_cache import ENTRY_BYTES, ByteCache


def test_the_least_recently_used_entries_are_dropped():
    """The oldest entries make room for new ones."""
    cache = ByteCache(3 * (ENTRY_BYTES + 10))
    for key in "abc":
        cache.put(key, key.upper(), 10)
    assert cache.get("a") == "A"
    cache.put("d", "D", 10)
    assert [cache.get(key) for key in "abcd"] == ["A", None, "C", "D"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2000))))
def test_its_size_is_limited(puts):
    """Repeated insertions stay within the limit; an entry above the limit is not kept."""
    cache = ByteCache(2000)
    for key, size in puts:
        cache.put(key, key, size)
        assert 0 <= cache.num_bytes <= 2000
        assert (cache.get(key) is None) == (size + ENTRY_BYTES > 2000)
