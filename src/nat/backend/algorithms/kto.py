"""KTO: rollouts are desirable or not, each by itself; no pairs are needed.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.algorithm import AlgorithmOptions, Completions
from nat.backend.algorithms.dpo import SEQUENCE_SETTINGS, summed
from nat.backend.algorithms.sft import SFT
from nat.wire.numbers import Amount


class KtoOptions(AlgorithmOptions):
    """Options of `kto`."""

    desirable_weight: Amount = 1.0
    """Weight of the rollouts that are better than what they are compared with."""
    undesirable_weight: Amount | None = None
    """Weight of those that are worse. Null: `desirable_weight`, or less where they are more in a step, so that both
    kinds weigh the same in all; a model that mostly learns what not to say forgets the good answers, too."""


def centred_rollouts(returns: Returns) -> Tensor:
    """Give the mean return of each rollout less the mean of all, because a rollout is desirable as a whole."""
    means = Returns(returns.means_R, (1,) * len(returns.counts))
    return returns.spread(means.minus(means.mean))


def kto_loss(completions: Completions) -> Tensor:
    """Give the mean of 1 - sigmoid(±β(d - z)), + for desirable completions, - for the others; times their weights.

    TRL's weights are 1 and 1, whatever the numbers of both kinds; the paper advises weights that balance them.

    d = log π - log π_ref, and z = max(0, mean d of mismatched completions) estimates the KL divergence (equation 8).
    """
    options, baseline = completions.options, max(0.0, completions.mismatched_kl)
    value_S = completions.beta * (completions.log_ratio_S - baseline)
    gain = 1 - torch.sigmoid(completions.chosen(value_S))
    loss = 1 - torch.sigmoid(-completions.rejected(value_S))
    undesirable_weight = options.undesirable_weight
    if undesirable_weight is None:
        undesirable_weight = options.desirable_weight * min(1.0, max(1, len(gain)) / max(1, len(loss)))
    return torch.cat([options.desirable_weight * gain, undesirable_weight * loss]).mean()


KTO = replace(
    SFT,
    name="kto",
    summary="Makes rollouts better than their group's mean more likely and the others less, without pairs.",
    paper="arXiv 2402.01306",
    advantage=Advantage(centred_rollouts),
    defaults={"normalize_advantages": False, "importance_sampling_cap": None, "beta": 0.1, "max_kl": 0.03},
    aggregation=summed,
    options=KtoOptions,
    unused=SEQUENCE_SETTINGS,
    needs_advantage=True,
    sequence_loss=kto_loss,
    needs_mismatched=True,
)
