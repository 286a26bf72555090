"""Bounds of the numbers on the wire: all are finite, and none is so large that computing with it overflows."""

from typing import Annotated

from pydantic import Field

from nat.wire.rewards import LARGEST

_LEAST_LOGPROB, _MOST_LOGPROB = -1e5, 1.0
"""Servers write -9999 for minus infinity, and rounding may put the logarithm of 1 a little above 0."""

Logprob = Annotated[float, Field(ge=_LEAST_LOGPROB, le=_MOST_LOGPROB, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
"""A weight, a distance or another setting that may be zero."""
PositiveAmount = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]


def is_logprob(value: float) -> bool:
    """True for a number that a job may have as a log probability."""
    return _LEAST_LOGPROB <= value <= _MOST_LOGPROB
