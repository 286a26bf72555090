"""How much groups of rollouts can teach, estimated from the rewards that some examples got. Pure.

A group teaches if its rewards differ. An example on which a rollout succeeds with probability p gives a group of G
rollouts with a difference with probability 1 - p^G - (1-p)^G. The p of an example is not known, only how often it
succeeded: its posterior has a Beta prior, or a Dirichlet prior for more than two different rewards.

Shapes: E examples, G generations (rollouts of an example), V different rewards, K scores of the same output.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, fsum, lgamma, log, sqrt
from statistics import fmean, variance

from nat.finetuning.diagnosis.facts import Noise, Prospect
from nat.finetuning.probe.records import Interval
from nat.wire import rewards

GENERATIONS = (4, 8, 16, 32)
"""The numbers of generations that are compared."""
ENOUGH_SIGNAL = 0.75
"""The advised number of generations has at least this share of the signal per rollout of the best one."""

_TAIL = 0.025
_BISECTIONS = 50
_CONCENTRATIONS = tuple(2.0**power for power in range(-3, 9))
"""Equally likely beforehand: from examples that always or never succeed to examples that are all alike."""
_UNSEEN = 0.5
"""Pseudocount of each different reward in all rollouts together (Jeffreys)."""


def interval_of_share(count: int, total: int) -> Interval:
    """The shares for which `count` of `total` is not among the outer 2.5 % (Clopper and Pearson, 1934).

    It contains the true share in at least 95 % of samples, however small.
    """
    return 1 - _largest_share(total - count, total), _largest_share(count, total)


def value_counts(rewards_EG: Sequence[Sequence[float]]) -> list[Counter[int]]:
    """How often each example got each different reward; rewards are numbered from the lowest, equal up to rounding."""
    every = sorted(reward for rewards_G in rewards_EG for reward in rewards_G)
    allowed = rewards.rounding(every)
    number, numbers = 0, dict.fromkeys(every[:1], 0)
    for before, value in pairwise(every):
        number += value - before > allowed
        numbers[value] = number
    return [Counter(numbers[reward] for reward in rewards_G) for rewards_G in rewards_EG]


def prospects(counts_EV: Sequence[Counter[int]], generations: Iterable[int] = GENERATIONS) -> list[Prospect]:
    """The expected share of groups with a difference, and the signal per rollout, for each number of generations.

    The share is 1 - Σ_v E[q_v^G], averaged over the examples, where q_v is the probability of reward v. Its posterior
    is Dirichlet(c·g + counts): g is the share of each reward in all rollouts, and the concentration c, which says how
    alike the examples are, is averaged over a grid by its marginal likelihood (Dirichlet-multinomial; Minka, 2000).
    For two rewards that is the mean of 1 - p^G - (1-p)^G over a Beta posterior.

    The signal is the share times 1 - 1/G: a reward is compared with the mean of its own group, which contains it, so
    only that part of its variance is left.
    """
    mean_V = _shares(counts_EV)
    priors = [_Prior([concentration * share for share in mean_V]) for concentration in _CONCENTRATIONS]
    likelihoods = [sum(map(prior.log_likelihood, counts_EV)) for prior in priors]
    weights = [exp(likelihood - max(likelihoods)) for likelihood in likelihoods]
    found = []
    for G in generations:
        equal = [fmean(prior.chances_of_equal(counts_EV, G)) for prior in priors]
        share = 1 - sum(weight * chance for weight, chance in zip(weights, equal, strict=True)) / sum(weights)
        found.append(Prospect(generations=G, share=share, signal=share * (1 - 1 / G)))
    return found


def advised_generations(found: Sequence[Prospect]) -> int:
    """The smallest number of generations with `ENOUGH_SIGNAL` of the largest signal per rollout."""
    largest = max(prospect.signal for prospect in found)
    return min(prospect.generations for prospect in found if prospect.signal >= ENOUGH_SIGNAL * largest)


def score_noise(scores_EGK: Sequence[Sequence[Sequence[float]]]) -> Noise | None:
    """How much of the differences within groups is the evaluator's own; None if there is nothing to compare.

    A one-way analysis of variance of K scores of each output: the mean square within outputs over that plus the
    variance between the outputs of a group, which is 1 - ICC(1) (Shrout and Fleiss, 1979).
    """
    groups = [outputs for scores_GK in scores_EGK if len(outputs := [s for s in scores_GK if len(s) > 1]) > 1]
    if not groups:
        return None
    scores_GK = [scores_K for outputs in groups for scores_K in outputs]
    K = min(map(len, scores_GK))
    within = fmean(variance(scores_K[:K]) for scores_K in scores_GK)
    means = [[fmean(scores_K[:K]) for scores_K in outputs] for outputs in groups]
    freedom = [len(outputs) - 1 for outputs in means]
    of_means = sum(n * variance(outputs) for n, outputs in zip(freedom, means, strict=True)) / sum(freedom)
    between = max(0.0, of_means - within / K)
    if within <= rewards.rounding(score for scores_K in scores_GK for score in scores_K) ** 2:
        within = 0.0
    share = within / (within + between) if within else 0.0
    return Noise(share=share, deviation=sqrt(within), outputs=len(scores_GK), scores=K)


def _largest_share(count: int, total: int) -> float:
    """The share at which at most `count` of `total` has the probability `_TAIL`, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS if count < total else 0):
        share = (low + high) / 2
        odds, none = log(share / (1 - share)), total * log(1 - share)
        chance = fsum(exp(_log_choices(total, k) + k * odds + none) for k in range(count + 1))
        low, high = (share, high) if chance > _TAIL else (low, share)
    return high


def _log_choices(total: int, k: int) -> float:
    """Logarithm of the binomial coefficient, which itself may be too large for a float."""
    return lgamma(total + 1) - lgamma(k + 1) - lgamma(total - k + 1)


def _shares(counts_EV: Sequence[Counter[int]]) -> list[float]:
    """The share of each reward in all rollouts; if only one was seen, there may be a second one."""
    totals = sum(counts_EV, Counter({0: 0, 1: 0}))
    seen = [totals[value] + _UNSEEN for value in range(max(2, len(totals)))]
    whole = sum(seen)
    return [count / whole for count in seen]


@dataclass(frozen=True)
class _Prior:
    """A Dirichlet prior of the probabilities of the rewards."""

    alpha_V: Sequence[float]

    def log_likelihood(self, counts_V: Counter[int]) -> float:
        """Of the rewards of one example, up to a constant."""
        chosen = sum(_log_rising(self.alpha_V[value], count) for value, count in counts_V.items())
        return chosen - _log_rising(sum(self.alpha_V), counts_V.total())

    def chances_of_equal(self, counts_EV: Sequence[Counter[int]], G: int) -> Iterator[float]:
        """For each example, the posterior probability that all rewards of a group of G are equal."""
        unseen_V = [exp(_log_rising(alpha, G)) for alpha in self.alpha_V]
        whole, total = sum(unseen_V), sum(self.alpha_V)
        for counts_V in counts_EV:
            more = (
                exp(_log_rising(self.alpha_V[value] + count, G)) - unseen_V[value] for value, count in counts_V.items()
            )
            yield (whole + sum(more)) / exp(_log_rising(total + counts_V.total(), G))


def _log_rising(start: float, steps: int) -> float:
    """Logarithm of start · (start + 1) · … · (start + steps - 1)."""
    return lgamma(start + steps) - lgamma(start)
