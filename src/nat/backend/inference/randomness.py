"""Uniform numbers that depend on a seed and a position only, so that a batch cannot change what is sampled."""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BITS = 48
_MASK_64 = (1 << 64) - 1


def uniforms(seeds_B: NDArray[np.uint64], positions_B: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in [0, 1) per sequence: SplitMix64's output function over (seed, position).

    48 bits, so that u * total stays below the total in float64 and no impossible last token is drawn.
    """
    mixed = _mix(_mix(seeds_B) + (positions_B + np.uint64(1)) * _GOLDEN)
    return (mixed >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS


def derive_seed(seed: int, stream: int) -> int:
    """An independent 64-bit seed for the `stream`-th choice of a request."""
    pair = np.array([seed & _MASK_64, stream], dtype=np.uint64)
    mixed = _mix(pair[:1])
    return int(_mix(mixed + (pair[1:] + np.uint64(1)) * _GOLDEN)[0])


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014); arrays wrap around silently."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
