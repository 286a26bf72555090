"""A trainer for `command_trainer_adapter`: a policy loss of verl's registry in the loop of `plain_torch.py`."""

import os
from typing import Any

import torch
from plain_torch import CLIP_HIGH, CLIP_LOW, main, scored  # type: ignore[import-not-found]  # beside this file
from verl.trainer.ppo.core_algos import get_policy_loss_fn  # type: ignore[import-not-found]  # in its own environment
from verl.workers.config import ActorConfig  # type: ignore[import-not-found]  # likewise

LOSS = get_policy_loss_fn(os.environ.get("VERL_LOSS", "vanilla"))
CONFIG = ActorConfig(
    strategy="fsdp",
    rollout_n=1,
    use_dynamic_bsz=True,
    clip_ratio=CLIP_LOW,
    clip_ratio_low=CLIP_LOW,
    clip_ratio_high=CLIP_HIGH,
)


def loss_of(model: Any, row: dict[str, Any]) -> torch.Tensor:
    """The sum over the row's trained tokens, as a batch of one."""
    logprobs, old, advantages, mask = (values[None] for values in scored(model, row))
    loss, _ = LOSS(old, logprobs, advantages, mask, loss_agg_mode="seq-mean-token-sum", config=CONFIG)
    assert isinstance(loss, torch.Tensor), "verl gives the loss and its metrics"
    return loss


if __name__ == "__main__":
    main(loss_of)
