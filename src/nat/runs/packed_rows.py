"""Training rows as bytes: 4 for each token id, 4 for each log probability and 1 for each mask, then zlib.

Nothing is lost: log probabilities that are no float32 numbers take 8 bytes. The bytes begin with one line of JSON, a
`_Head` for each row; the arrays of the rows follow, little-endian.
"""

import struct
import zlib
from collections.abc import Sequence
from io import BytesIO

from pydantic import BaseModel, Field, TypeAdapter

from nat.wire.training import AnswerReturn, SampledAt, SampledBy, TrainingRow

_LEVEL = 1
"""Of zlib; higher levels save a few percent and take several times as long."""
_LARGEST = 2**28
"""Bytes of a rollout's unpacked rows, 28 million tokens; a few damaged bytes can stand for gigabytes."""
_IDS, _LOGPROBS = ("i", "q"), ("f", "d")
"""The `struct` formats of the arrays, the smallest first."""


class _Head(BaseModel):
    """How to read the arrays of a row, and what is not in them."""

    num_tokens: int = Field(ge=0, le=_LARGEST)
    ids: str = Field(pattern="^[iq]$")
    logprobs: str = Field(pattern="^[fd]$")
    returns: list[AnswerReturn] | None
    temperatures: list[SampledAt] | None
    policy_versions: list[SampledBy] | None = None


_HEADS = TypeAdapter(list[_Head])


def pack_rows(rows: Sequence[TrainingRow]) -> bytes | None:
    """Give the bytes of the rows, or None if a token id has more than 64 bits."""
    heads, arrays = [], []
    try:
        for row in rows:
            ids, id_bytes = _packed(row.token_ids, _IDS)
            logprobs, logprob_bytes = _packed([value for value in row.logprobs if value is not None], _LOGPROBS)
            rest = row.model_dump(include={"returns", "temperatures", "policy_versions"})
            heads.append(_Head(num_tokens=len(row.token_ids), ids=ids, logprobs=logprobs, **rest))
            arrays += [id_bytes, bytes(value is not None for value in row.logprobs), logprob_bytes]
    except struct.error:
        return None
    return zlib.compress(b"\n".join([_HEADS.dump_json(heads), b"".join(arrays)]), _LEVEL)


def unpack_rows(packed: bytes) -> list[TrainingRow]:
    """Give the rows again.

    Raises:
        ValueError: the bytes are not those of `pack_rows`.

    """
    unzipping = zlib.decompressobj()
    try:
        file = BytesIO(unzipping.decompress(packed, _LARGEST))
        if not unzipping.eof:
            raise ValueError(f"they end early, or have more than {_LARGEST} bytes")
        return [_row(head, file) for head in _HEADS.validate_json(file.readline())]
    except (TypeError, zlib.error, struct.error, StopIteration) as error:
        raise ValueError(f"the packed rows are damaged: {error}") from error


def _row(head: _Head, file: BytesIO) -> TrainingRow:
    token_ids = _read(file, head.num_tokens, head.ids)
    sampled = file.read(head.num_tokens)
    logprobs = iter(_read(file, sum(sampled), head.logprobs))
    return TrainingRow(
        token_ids=list(token_ids),
        logprobs=[next(logprobs) if one else None for one in sampled],
        returns=head.returns,
        temperatures=head.temperatures,
        policy_versions=head.policy_versions,
    )


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
