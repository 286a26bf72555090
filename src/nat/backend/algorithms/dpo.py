"""DPO: of two answers to the same prompt, make the better one more likely than the worse one. KTO: without pairs.

Shapes: as in algorithm.py; P pairs.
"""

from dataclasses import replace
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import logsigmoid

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.algorithm import AlgorithmOptions, Completions
from nat.backend.algorithms.sft import RATIO_SETTINGS, SFT
from nat.preferences.pairs import Pairing, PairRule
from nat.wire.numbers import Amount

SEQUENCE_SETTINGS = RATIO_SETTINGS | {"aggregation", "max_completion_length"}
"""What an algorithm with a sequence loss does not use."""


def summed(tokens_R: Tensor, max_completion_length: int) -> Tensor:  # noqa: ARG001 - the signature of an aggregation
    """The sum over tokens; the slope of the sequence loss has all weights."""
    return torch.ones_like(tokens_R)


class DpoOptions(AlgorithmOptions):
    """Options of `dpo`."""

    loss_type: Literal["sigmoid", "sigmoid_norm", "ipo", "robust"] = "sigmoid"
    """`sigmoid` is DPO; `sigmoid_norm` compares means per token instead of sums, so that length counts less; `ipo`
    aims at a margin of 1 / (2 beta), so that certain preferences do not grow without end; `robust` corrects for a share
    of wrong labels, `label_smoothing`."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Assumed share of pairs that are the wrong way round; for `sigmoid` (conservative DPO) and `robust`."""
    sft_loss_weight: Amount = 0.2
    """Weight of the cross entropy of the chosen answers' tokens: with 0, as in TRL, both answers may become unlikely,
    the worse one only faster."""
    pairs: Pairing = "all"
    """All rollouts of a group whose rewards differ, or (`best_worst`) the pair with the largest difference alone."""
    margin: Amount = 0.0
    """The least difference in reward of a pair; at 0 any difference is enough."""
    max_pairs: int | None = Field(default=None, ge=1)
    """The most pairs of a group, those with the largest difference; null keeps all."""
    completion: Literal["turn", "rest"] = "rest"
    """What is compared: all answers from where the two rollouts part, or (`turn`) only the one where they do."""

    @model_validator(mode="after")
    def _smoothing_has_effect(self) -> Self:
        if self.label_smoothing and self.loss_type == "ipo":
            raise ValueError(
                "label_smoothing has no effect with loss_type 'ipo', whose target is a finite margin already"
            )
        return self


def dpo_loss(completions: Completions) -> Tensor:
    """Give the mean over pairs, plus the cross entropy of the chosen tokens times its weight.

    With d = log π - log π_ref, m = d_chosen - d_rejected and the smoothing ε, a pair has

        sigmoid  -(1 - ε) log sigmoid(βm) - ε log sigmoid(-βm), which is equation 7 for ε = 0
        robust   (-(1 - ε) log sigmoid(βm) + ε log sigmoid(-βm)) / (1 - 2ε) (arXiv 2403.00409)
        ipo      (m - 1/(2β))² (arXiv 2310.12036)

    For `sigmoid_norm` and `ipo`, d is the mean per token, as in TRL.
    """
    options, beta = completions.options, completions.beta
    ratio_S = completions.log_ratio_S
    if options.loss_type in {"sigmoid_norm", "ipo"}:
        ratio_S = ratio_S / completions.tokens_S
    margin_P = completions.chosen(ratio_S) - completions.rejected(ratio_S)
    smoothing = options.label_smoothing
    right_P, wrong_P = -logsigmoid(beta * margin_P), -logsigmoid(-beta * margin_P)
    match options.loss_type:
        case "ipo":
            loss_P = (margin_P - 1 / (2 * beta)).square()
        case "robust":
            loss_P = ((1 - smoothing) * right_P - smoothing * wrong_P) / (1 - 2 * smoothing)
        case _:
            loss_P = (1 - smoothing) * right_P + smoothing * wrong_P
    loss = loss_P.mean()
    if options.sft_loss_weight:
        logprobs, tokens = (completions.chosen(values) for values in (completions.logprobs_S, completions.tokens_S))
        loss = loss - options.sft_loss_weight * logprobs.sum() / tokens.sum()
    return loss


def pair_rule(options: DpoOptions) -> PairRule:
    """Which rollouts of a group are compared."""
    return PairRule(options.margin, options.pairs, options.max_pairs)


DPO = replace(
    SFT,
    name="dpo",
    summary="Makes the better of two rollouts of a group more likely than the worse one, where the two part.",
    paper="arXiv 2305.18290",
    defaults={"normalize_advantages": False, "importance_sampling_cap": None, "beta": 0.1, "max_kl": 0.03},
    aggregation=summed,
    options=DpoOptions,
    unused=SEQUENCE_SETTINGS | {"advantage", "tokens_per_step"},
    sequence_loss=dpo_loss,
    pairs=pair_rule,
)


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
