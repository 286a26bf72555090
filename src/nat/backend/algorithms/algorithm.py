"""The parts of an algorithm: four factors, defaults of settings, and its options.

The loss of an optimizer step, over all of its sampled tokens k, is

    loss = - Σ_k weight_k · w_k · (objective_k - β · kl_k)

The advantage and the policy loss make the objective, the aggregation makes the weight; w corrects for the sampler. Any
split of a step into micro-batches sums to the same gradient.

An algorithm with a `sequence_loss` compares whole completions instead. Its loss depends on the policy only through
the log probability of each completion, the sum over its tokens. So the slope of the loss at that sum is what each of
its tokens has for an advantage, and the objective is slope · log π: any split sums to the same gradient here, too.

Shapes: K sampled tokens of a micro-batch, N its rows, R the rollouts and S the completions of an optimizer step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from nat.backend.algorithms.advantages import Advantage
from nat.preferences.pairs import PairRule

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to this before exp."""


@dataclass(frozen=True)
class PolicyTokens:
    """The sampled tokens of a micro-batch, as a policy loss sees them."""

    logprobs_K: Tensor
    """The policy's log probabilities, with a gradient."""
    old_logprobs_K: Tensor
    """Log probabilities that the ratio compares with."""
    log_ratio_K: Tensor
    """log(π/π_old) at the level that the settings choose, clamped, with a gradient."""
    advantages_K: Tensor
    row_K: Tensor
    """Which of the N rows a token belongs to."""
    num_rows: int
    epsilon: float
    epsilon_high: float
    options: Any
    """The algorithm's own options, an instance of `Algorithm.options`."""


class PolicyTerm(NamedTuple):
    """The policy loss's result for each token."""

    objective_K: Tensor
    """To be maximised."""
    clipped_low_K: Tensor
    """True where the lower bound took the gradient or changed the weight; for the metrics."""
    clipped_high_K: Tensor
    """The same for the upper bound."""


def clamped(log_ratio_K: Tensor) -> Tensor:
    """Bound log ratios, so that one absurd token cannot make the loss infinite."""
    return log_ratio_K.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


@dataclass(frozen=True)
class Completions:
    """The S completions of an optimizer step, as a sequence loss sees them; float64 where the device has it."""

    logprobs_S: Tensor
    """Sum of log π over the tokens of each, with a gradient."""
    reference_S: Tensor
    """The same under the reference model."""
    tokens_S: Tensor
    """Number of tokens of each."""
    better_S: Tensor
    """bool: the chosen ones of pairs, or the desirable ones. The chosen ones have the order of the rejected ones."""
    mismatched_kl: float
    """Mean of log π - log π_ref over completions of other prompts, if `Algorithm.needs_mismatched`; else 0."""
    beta: float
    options: Any
    """The algorithm's own options, an instance of `Algorithm.options`."""

    @property
    def log_ratio_S(self) -> Tensor:
        """Log π - log π_ref of each completion."""
        return self.logprobs_S - self.reference_S

    def chosen(self, values_S: Tensor) -> Tensor:
        return values_S[self.better_S]

    def rejected(self, values_S: Tensor) -> Tensor:
        return values_S[~self.better_S]


TeacherAdvantage = Callable[[Tensor, Tensor, Any], Tensor]
"""(log π_teacher - log π of each token, its advantage by rewards, options) → its advantage [K]."""
SequenceLoss = Callable[[Completions], Tensor]
"""The loss of an optimizer step, a mean over its pairs or completions."""
RatioLevel = Callable[[Tensor, Tensor, int], Tensor]
"""(log ratio of each token [K], its row [K], number of rows) → log ratio of each token at this level [K]."""
PolicyLoss = Callable[[PolicyTokens], PolicyTerm]
Aggregation = Callable[[Tensor, int], Tensor]
"""(sampled tokens of each rollout [R], max_completion_length) → weight of one token of each rollout [R]."""


class AlgorithmOptions(BaseModel):
    """Base of an algorithm's own options, the keys of `training.options`; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def _unchanged(num_rollouts: int, options: Any) -> float:  # noqa: ARG001 - the signature of the field
    return 1.0


@dataclass(frozen=True)
class Algorithm:
    """An algorithm; `dataclasses.replace` makes a variant of it."""

    name: str
    """The value of `training.algorithm`; for a plug-in also the name of its entry point."""
    summary: str
    """One sentence for the table of algorithms."""
    paper: str
    """arXiv number, or where else it is described."""
    advantage: Advantage
    importance_sampling_level: RatioLevel
    policy_loss: PolicyLoss
    aggregation: Aggregation
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `TrainingConfig` that this algorithm has another default for."""
    options: type[AlgorithmOptions] = AlgorithmOptions
    usual_rate: float = 1.0
    """Factor of the learning rate that the model's width gives, where the user sets none."""
    learning_rate_factor: Callable[[int, Any], float] = _unchanged
    """(rollouts of an optimizer step, options) → factor of its learning rate."""
    unused: frozenset[str] = frozenset()
    """Settings of `TrainingConfig` that have no effect with it; naming one of them is an error."""
    needs_logprobs: bool = True
    """False if it also learns from tokens that no sampler gave a log probability, as those of demonstrations."""
    needs_advantage: bool = False
    """Leave rollouts without an advantage out of the loss and of its denominator."""
    teacher_advantage: TeacherAdvantage | None = None
    """The advantage of a token, from the log probability that a teacher gives to it; every rollout then teaches."""
    sequence_loss: SequenceLoss | None = None
    """The loss over completions, which takes the place of advantages and of the KL term."""
    pairs: Callable[[Any], PairRule] | None = None
    """options → which rollouts of a group are pairs; None: a completion is a whole rollout, and better if its advantage
    is positive."""
    needs_mismatched: bool = False
    """Its sequence loss reads `mismatched_kl`."""
