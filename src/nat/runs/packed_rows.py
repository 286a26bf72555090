"""Training rows as bytes: 4 for each token id and 4 for each log probability, then zlib.

Nothing is lost: log probabilities that are no float32 numbers take 8 bytes. The bytes begin with one line of JSON, a
`_Head` for each row; the arrays of the rows follow, little-endian.
"""

import struct
import zlib
from collections.abc import Sequence
from io import BytesIO
from itertools import islice
from typing import Any

from pydantic import BaseModel, TypeAdapter

from nat.wire.training import TrainingRow

_LEVEL = 1
"""Of zlib; higher levels save a few percent and take several times as long."""
_IDS, _LOGPROBS = ("i", "q"), ("f", "d")
"""The `struct` formats of the arrays, the smallest first."""


class _Head(BaseModel):
    """How to read the arrays of a row, and what is not in them."""

    num_tokens: int
    ids: str
    logprobs: str
    spans: list[dict[str, Any]]
    """Of each span all but its log probabilities."""


_HEADS = TypeAdapter(list[_Head])


def pack_rows(rows: Sequence[TrainingRow]) -> bytes | None:
    """Give the bytes of the rows, or None if a token id has more than 64 bits, or a span no log probabilities."""
    heads, arrays = [], []
    try:
        for row in rows:
            if any(span.logprobs is None for span in row.spans):
                return None
            ids, id_bytes = _packed(row.token_ids, _IDS)
            logprobs, logprob_bytes = _packed([x for span in row.spans for x in span.logprobs or ()], _LOGPROBS)
            spans = [span.model_dump(exclude={"logprobs"}, exclude_defaults=True) for span in row.spans]
            heads.append(_Head(num_tokens=len(row.token_ids), ids=ids, logprobs=logprobs, spans=spans))
            arrays += [id_bytes, logprob_bytes]
    except struct.error:
        return None
    return zlib.compress(b"\n".join([_HEADS.dump_json(heads, exclude_defaults=True), b"".join(arrays)]), _LEVEL)


def unpack_rows(packed: bytes) -> list[TrainingRow]:
    """Give the rows again."""
    file = BytesIO(zlib.decompress(packed))
    return [TrainingRow.model_validate(_row(head, file)) for head in _HEADS.validate_json(file.readline())]


def _row(head: _Head, file: BytesIO) -> dict[str, Any]:
    token_ids = list(_read(file, head.num_tokens, head.ids))
    sizes = [span["stop"] - span["start"] for span in head.spans]
    logprobs = iter(_read(file, sum(sizes), head.logprobs))
    spans = [span | {"logprobs": list(islice(logprobs, size))} for span, size in zip(head.spans, sizes, strict=True)]
    return {"token_ids": token_ids, "spans": spans}


def _packed(values: Sequence[float], formats: tuple[str, str]) -> tuple[str, bytes]:
    """The first of the two formats if it keeps all values, else the second."""
    small, large = formats
    try:
        packed = struct.pack(f"<{len(values)}{small}", *values)
        if struct.unpack(f"<{len(values)}{small}", packed) == tuple(values):
            return small, packed
    except (struct.error, OverflowError):
        pass
    return large, struct.pack(f"<{len(values)}{large}", *values)


def _read(file: BytesIO, count: int, code: str) -> Sequence[float]:
    return struct.unpack(f"<{count}{code}", file.read(count * struct.calcsize(f"<{code}")))
