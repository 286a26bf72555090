"""The share of a card that vLLM gets beside a learner."""

import pytest

from nat.sizing.memory import Setup
from nat.sizing.shape import ModelShape
from nat.sizing.shared_card import MOST, vllm_share

SHAPE = ModelShape(151936, 4096, 12288, 36, 32, 8, 128, tied=False)
CARD = 80 * 10**9
LORA = Setup("cuda", "bfloat16", 16, embedded=False, gradient_checkpointing=True)


def share(setup: Setup = LORA, **given: object) -> float:
    return vllm_share(SHAPE, setup, **{"context": 32768, "sleeps": False, "total": CARD, "free": CARD, **given})


def test_vllm_gets_what_the_learner_leaves():
    """The learner of 8B with LoRA takes 16.4 GB of weights and a few for an update: about three quarters are left."""
    assert share() == pytest.approx(0.75, abs=0.03)
    assert share() < share(sleeps=True) < 0.8


def test_no_more_than_is_free_now():
    """VLLM refuses to start when less is free than its share."""
    assert share(free=CARD // 2) == 0.5
    assert share(total=10 * CARD, free=10 * CARD) == MOST


def test_all_weights_leave_nothing():
    """Training 8B in full takes more than the card, whether vLLM sleeps or not."""
    full = Setup("cuda", "bfloat16", embedded=False, gradient_checkpointing=True)
    assert share(full) == share(full, sleeps=True) == 0
