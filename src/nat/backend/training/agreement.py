"""Whether sampler and learner compute the same: with the weights before an update, and with those after it.

In float32 they agree to the last digits. In bfloat16 rounding alone makes a difference, 0.05 per token in a real model,
which depends on the model and its texts. So it is measured, before the first update and after each one, and what is
allowed follows from it. Wrong tokens differ by whole nats. Weights that did not arrive are found below the limit as
well, once an update moves the policy clearly further than rounding does: the sampler is then nearer to the old ones.
"""

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import torch

from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.checks import check_served_weights, check_weights_arrived
from nat.backend.training.loss import ByRow
from nat.backend.training.mismatch import Probe, difference, drawn_rows, endings, of_tokens, served_logprobs
from nat.wire.training import TrainingConfig

logger = logging.getLogger(__name__)

_EXACT = 32
"""Bits of a precision from which on rounding need not be measured, ..."""
_LEAST = 1e-4
"""... and a mean |Δ log p| that it stays below."""
_CLEARLY = 10.0
"""How much further than rounding an update has to move the policy, so that old weights are told from new ones."""
_DECODED = 8
"""Tokens of each row that are computed one at a time to measure rounding, as they were sampled. Many at a time may use
the learner's own kernels, and then differ by nothing."""
_TIMES_ROUNDING = 3.0
"""Allowed difference as a multiple of what rounding makes of a few tokens."""


class Moved(NamedTuple):
    """How far an update moved the policy."""

    metrics: dict[str, float]
    share: float = 1.0
    """Part of its way that was kept."""
    rows: Sequence[Row] = ()
    """On which it was measured."""
    logprobs: ByRow = {}  # noqa: RUF012 - a field of a named tuple
    """Their log probabilities after the update."""


class Agreement:
    """Compares sampler and learner; `score` gives the learner's log probabilities."""

    def __init__(
        self, policy: LoadedModel, probe: Probe, score: Callable[[Sequence[Row], TrainingConfig], ByRow]
    ) -> None:
        self._policy = policy
        self._probe = probe
        self._score = score
        self._rounding: float | None = None if torch.finfo(policy.dtype).bits < _EXACT else 0.0
        """The largest mean |Δ log p| that was seen between two computations with the same weights; 0 if not measured,
        None before the first update."""

    def allowed(self, bound: float) -> float:
        """The mean |Δ log p| above which they disagree: `bound`, or more if rounding alone comes near it."""
        return max(bound, _TIMES_ROUNDING * (self._rounding or 0.0))

    def measure_rounding(self, rows: Sequence[Row], config: TrainingConfig) -> None:
        """Compare the learner with our own sampler, once, while both have the same weights; not in float32."""
        if self._rounding is None:
            drawn = endings(drawn_rows(rows, Random(config.seed)), _DECODED)
            seen = difference(drawn, self._score(drawn, config), served_logprobs(self._policy, drawn, _DECODED + 1))
            self._policy.linears.forget()
            self._rounding = seen.mean
            logger.info("rounding to %s alone makes %s", str(self._policy.dtype).removeprefix("torch."), seen)

    def served(self, rows: Sequence[Row], moved: Moved, start: ByRow, config: TrainingConfig) -> dict[str, float]:
        """Check on short rows that the sampler has the new weights; `start` has log probabilities of those before."""
        probe = self._probe.choose(moved.rows or rows)
        learned = of_tokens(probe, moved.rows, moved.logprobs) if moved.rows else self._score(probe, config)
        scored = self._probe.score(self._policy, probe)
        seen = difference(probe, learned, scored)
        check_served_weights(seen, self.allowed(config.max_served_difference or config.max_logprob_difference))
        rounding = self._rounding or 0.0
        if moved.rows:
            before = of_tokens(probe, moved.rows, start)
            if difference(probe, before, learned).mean > _CLEARLY * max(rounding, _LEAST):
                check_weights_arrived(seen, difference(probe, before, scored))
        if rounding:
            self._rounding = max(rounding, seen.mean)
        return {"served_diff_mean": seen.mean, "served_diff_max": seen.largest}
