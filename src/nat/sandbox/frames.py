"""Messages between the sandbox and its child: JSON after its length, on a socket.

JSON and not pickle: the child runs programs of others, and reading its answer must not run anything.
"""

import json
import socket
import struct
from typing import Any

OUT_OF_MEMORY = 75
"""Exit code of a child whose task needed more memory than it may use."""
_LENGTH = struct.Struct(">Q")


def frame(message: Any) -> bytes:
    """The bytes of a message, in ASCII, so that lone surrogates stay as they are."""
    data = json.dumps(message).encode()
    return _LENGTH.pack(len(data)) + data


def receive(link: socket.socket, *, longest: int | None = None) -> Any:
    """The next message; None once the other side has closed or ended.

    Raises:
        OverflowError: it announces more than `longest` bytes.

    """
    head = _exactly(link, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if longest is not None and length > longest:
        raise OverflowError(f"an answer of {length} bytes")
    data = _exactly(link, length)
    return None if data is None else json.loads(data)


def _exactly(link: socket.socket, size: int) -> bytearray | None:
    data = bytearray()
    while len(data) < size:
        part = link.recv(min(size - len(data), 2**20))
        if not part:
            return None
        data += part
    return data
