"""Lite PPO, the default: the mean of the group as baseline, the standard deviation of the batch as scale.

The clip range is DAPO's.
"""

from dataclasses import replace

from nat.backend.algorithms.advantages import Advantage
from nat.backend.algorithms.dapo import token_mean
from nat.backend.algorithms.dr_grpo import centred
from nat.backend.algorithms.grpo import GRPO

LITE_PPO = replace(
    GRPO,
    name="lite_ppo",
    summary="The default: subtracts the mean of the group and divides by the standard deviation of the batch.",
    paper="arXiv 2508.08221",
    advantage=Advantage(centred),
    aggregation=token_mean,
    defaults={"normalize_advantages": True, "epsilon": 0.2, "epsilon_high": 0.28},
)
