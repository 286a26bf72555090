"""Compare two checkpoints tensor by tensor, as their bytes are: the harness has no torch."""

from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nat.runs.replayed import Weights
from nat.wire.model_folder import tensor_entries

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "I8": "i1", "BOOL": "u1"}
_OPTIMIZER = "optimizer.safetensors"


def compared_checkpoints(ours: Path, theirs: Path, reach: float) -> Weights:
    """Compare all tensors; `reach` is the sum of the learning rates by which the update could move a weight."""
    tensors, differing, most = 0, 0, (0.0, "")
    for file in sorted(path for path in theirs.glob("*.safetensors") if path.is_file()):
        replayed = dict(_tensors(ours / file.name))
        for name, recorded in _tensors(file):
            tensors += 1
            own = replayed.get(name, ("", recorded[1][:0]))
            if own[0] == recorded[0] and np.array_equal(own[1], recorded[1]):
                continue
            differing += 1
            moves = file.name != _OPTIMIZER or name.startswith("master.")
            values = _values(*recorded)
            size = reach if moves else sqrt(float(np.square(values).mean()))
            alike = own[0] == recorded[0] and len(own[1]) == len(recorded[1])
            gap = sqrt(float(np.square(_values(*own) - values).mean())) if alike else float("inf")
            most = max(most, (gap / (size or 1.0), name))
    return Weights(tensors=tensors, differing=differing, largest=most[1] or None, relative=most[0])


def _tensors(path: Path) -> Iterator[tuple[str, tuple[str, NDArray[np.uint8]]]]:
    """The tensors of a safetensors file: name, type, and bytes."""
    raw, (header, begin) = np.memmap(path, dtype=np.uint8, mode="r"), tensor_entries(path)
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        yield name, (entry["dtype"], raw[begin + first : begin + end])


def _values(kind: str, raw: NDArray[np.uint8]) -> NDArray[np.float64]:
    if kind == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    return np.frombuffer(raw, _TYPES[kind]).astype(np.float64)
