"""Rejection sampling: imitate the best rollouts of each group, the others teach nothing.

Shapes: as in algorithm.py.
"""

from dataclasses import replace

from torch import Tensor

from nat.backend.algorithms.advantages import Advantage, Returns
from nat.backend.algorithms.sft import SFT


def best(returns: Returns) -> Tensor:
    """Give 1 for the rollouts with the highest mean return, all of them if several have it, and 0 for the others."""
    means_R = returns.means_R
    return returns.spread((means_R == means_R.max()).to(means_R.dtype))


RFT = replace(
    SFT,
    name="rft",
    summary="Rejection sampling: imitates the rollouts with the highest reward of their group.",
    paper="arXiv 2308.01825",
    advantage=Advantage(best),
    needs_advantage=True,
)
