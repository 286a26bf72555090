"""A least-recently-used cache with a limit in bytes, because texts of requests may have any length."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 300
"""Size of an entry beyond its content: keys, links, object headers."""


class ByteCache(Generic[K, V]):
    """Safe to call from any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: K, value: V, content_bytes: int) -> None:
        """Add a value; `content_bytes` is its size with its key. The least recently used entries make room."""
        size = content_bytes + ENTRY_BYTES
        with self._lock:
            self._num_bytes += size - self._entries.pop(key, (value, 0))[1]
            self._entries[key] = (value, size)
            while self._num_bytes > self._max_bytes:
                self._num_bytes -= self._entries.popitem(last=False)[1][1]
