"""The loss of a batch against numbers of ART 0.5.18's own loss, on the same tokens.

Two trajectories of 5 and 4 trained tokens with advantages of +1 and -1 and weights of 0.9 and 1.125. The gradients are
those with respect to the new log probabilities.
"""

import pytest
import torch

from nat.art.server.algorithm import ArtOptions, art_loss
from nat.backend.algorithms.algorithm import PolicyTokens
from nat.backend.algorithms.registry import resolve
from nat.backend.training.batch import Row
from nat.backend.training.linear_cross_entropy import TokenScores
from nat.backend.training.loss import Anchors, kl_penalty, micro_batch_loss
from nat.backend.training.micro_batch import make_micro_batch
from nat.wire.training import TrainingConfig

OLD = [-1.0, -2.0, -0.5, -0.1, -3.0, -1.5, -0.7, -2.5, -0.2]
MOVED = [0.1, -0.3, 0.5, 2.0, -1.0, 0.2, -0.4, 1.0, -2.0]
SAMPLER = [-1.1, -1.8, -0.9, -0.3, -2.0, -1.5, -1.0, -2.0, -0.4]
REFERENCE = [-1.2, -2.1, -0.3, -0.4, -2.0, -1.4, -0.9, -2.0, -0.6]
CISPO = {"epsilon": 1.0, "epsilon_high": 4.0, "importance_sampling_cap": None}
PPO = {"ppo": True, "epsilon": 0.2, "epsilon_high": 0.2, "importance_sampling_cap": None}
AVERAGES = ("average", "geometric_average")
BYPASS = {"old_logprobs": "sampler"}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def art_config(options):
    """ART's algorithm with its own options in their place."""
    own = {
        name: value
        for name, value in options.items()
        if name in ArtOptions.model_fields and (name != "importance_sampling_level" or value in AVERAGES)
    }
    rest = {name: value for name, value in options.items() if name not in own}
    return TrainingConfig(**{"algorithm": "art", "old_logprobs": "learner", **rest}, options=own)


def loss_of(options, *, old=OLD, moved=MOVED, sampler=None, penalty=None, config_of=art_config):
    """The loss, and its gradient by token."""
    new = (tensor(old) + tensor(moved)).requires_grad_()
    sampler = sampler or old
    rows = [
        Row(0, 0, 0, [0] * 5, list(range(5)), [0] * 5, sampler[:5], [1.0] * 5, 0.9),
        Row(1, 0, 1, [0] * 4, list(range(4)), [0] * 4, sampler[5:], [-1.0] * 4, 1.125),
    ]
    batch = make_micro_batch(rows, {0: 1 / 9, 1: 1 / 9}, torch.device("cpu"))
    anchors = Anchors(tensor(old), None, penalty)
    loss, _ = micro_batch_loss(TokenScores(new, torch.zeros(9)), batch, anchors, resolve(config_of(options)))
    loss.backward()
    return loss.item(), new.grad.tolist()


def near(values):
    return pytest.approx(values, abs=2e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [(CISPO, -0.100294), (PPO, 0.0), ({**PPO, "epsilon": 0.05, "epsilon_high": 0.05}, 0.027585)],
    ids=["cispo", "ppo 0.2", "ppo 0.05"],
)
def test_every_token_a_tenth_likelier(options, expected):
    """Each log probability rose by 0.1: PPO's wide range does not clip, its narrow one clips the better trajectory."""
    seen, _ = loss_of({**options, **BYPASS}, old=[-0.3] * 5 + [-0.4815] * 4, moved=[0.1] * 9)
    assert seen == near(expected)


GOLDEN = [
    (CISPO, {}, -1.370536, [-0.110517, -0.074082, -0.164872, -0.5, -0.036788, 0.152675, 0.08379, 0.339785, 0.016917]),
    (PPO, {}, 0.231074, [-0.110517, -0.074082, 0.0, 0.0, -0.036788, 0.152675, 0.0, 0.339785, 0.0]),
    (CISPO, {"importance_sampling_level": "sequence"}, 0.122499, [-0.129693] * 5 + [0.092602] * 4),
    (PPO, {"importance_sampling_level": "sequence"}, -0.2, [0.0] * 9),
    (
        CISPO,
        {"importance_sampling_level": "average"},
        -0.850979,
        [-0.120105, -0.101887, -0.147283, -0.434299, -0.08324, 0.122639, 0.088196, 0.216194, 0.05476],
    ),
    (
        PPO,
        {"importance_sampling_level": "average"},
        -0.006295,
        [-0.025939, -0.06298, -0.025939, -0.025939, -0.044333, 0.099488, 0.023151, 0.193043, 0.023151],
    ),
    (
        CISPO,
        {"importance_sampling_level": "geometric_average"},
        -0.583305,
        [-0.119722, -0.09802, -0.146228, -0.309566, -0.069073, 0.118904, 0.088086, 0.177383, 0.03958],
    ),
    (
        PPO,
        {"importance_sampling_level": "geometric_average"},
        -0.030528,
        [-0.088542, -0.077691, -0.028682, -0.028682, -0.063218, 0.096488, 0.037036, 0.125728, 0.037036],
    ),
    (
        CISPO,
        {"kimi_k2_tau": 0.5},
        -0.545411,
        [-0.104991, -0.085194, -0.123654, 0.0, -0.055182, 0.167943, 0.067032, 0.509678, 0.0],
    ),
    (
        PPO,
        {"kimi_k2_tau": 0.5},
        0.422253,
        [-0.104991, -0.085194, 0.0, 0.0, -0.055182, 0.167943, 0.0, 0.509678, 0.0],
    ),
    (
        CISPO,
        {"mask_prob_ratio": True},
        -0.420537,
        [-0.110517, -0.074082, -0.164872, 0.0, -0.036788, 0.152675, 0.08379, 0.339785, 0.016917],
    ),
    (
        CISPO,
        {"epsilon": 0.2, "epsilon_high": 0.3},
        -0.415763,
        [-0.110517, -0.08, -0.13, -0.13, -0.08, 0.152675, 0.1, 0.1625, 0.1],
    ),
]


@pytest.mark.parametrize(("kind", "options", "loss", "gradient"), GOLDEN, ids=lambda v: str(v) if v else "plain")
def test_golden_losses(kind, options, loss, gradient):
    """Loss and gradient match ART's loss for each level and bound of the ratio."""
    assert loss_of({**kind, **BYPASS, **options}) == (near(loss), near(gradient))


def core_config(options):
    """The backend's own clipped objective with the same settings."""
    return TrainingConfig(policy_loss="clip", **{name: value for name, value in options.items() if name != "ppo"})


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_backends_own_clip_is_the_same_ppo(level):
    """Loss and gradient of `policy_loss: clip` are those of ART's PPO, at both levels."""
    options = {**PPO, **BYPASS, "importance_sampling_level": level}
    loss, gradient = loss_of(options)
    assert loss_of(options, config_of=core_config) == (near(loss), near(gradient))


def test_golden_mask_with_ppo():
    """Outside of the range no token has a gradient, whichever way it moved; the one inside keeps its own.

    ART's loss also contains a constant for each masked token, without a gradient; ours contains none.
    """
    loss, gradient = loss_of({**PPO, **BYPASS, "mask_prob_ratio": True})
    assert gradient == near([-0.110517, *[0.0] * 8])
    assert loss == near(-0.110517)


def test_golden_cap_where_the_advantage_is_negative():
    """A ratio of e is capped at 1.5 in the worse trajectory and unchanged in the better one.

    ART caps both, unlike the option's name says.
    """
    _, gradient = loss_of({**CISPO, **BYPASS, "max_negative_advantage_importance_sampling_weight": 1.5})
    assert gradient[5:] == near([0.152675, 0.08379, 0.1875, 0.016917])
    assert gradient[:5] == near(loss_of({**CISPO, **BYPASS})[1][:5])


def test_golden_truncated_importance_sampling():
    """With the learner's π_old the loss of each token is multiplied by min(π_old/μ, 1.2)."""
    assert loss_of({**CISPO, "importance_sampling_cap": 1.2}, sampler=SAMPLER) == (
        near(-1.499314),
        near([-0.12214, -0.060653, -0.197847, -0.6, -0.013534, 0.152675, 0.100548, 0.20609, 0.0203]),
    )


def test_golden_kl_penalty():
    """Tokens that are less likely than under the reference gain advantage, the others lose as much."""
    penalty = 0.3 * kl_penalty(tensor(OLD), tensor(REFERENCE))
    assert loss_of({**CISPO, **BYPASS}, moved=[0.0] * 9, penalty=penalty) == (
        near(0.1464),
        near([-0.092, -0.095, -0.104, -0.089, -0.128, 0.12375, 0.135, 0.10875, 0.1425]),
    )


def tokens(log_ratio, advantages, *, logprobs=None, low=0.2, high=0.28, **options):
    """Tokens of one row with options of ART."""
    return PolicyTokens(
        logprobs_K=log_ratio if logprobs is None else logprobs,
        old_logprobs_K=torch.zeros_like(log_ratio),
        log_ratio_K=log_ratio.clamp(-20, 20),
        advantages_K=advantages,
        row_K=torch.zeros(len(log_ratio), dtype=torch.long),
        num_rows=1,
        epsilon=low,
        epsilon_high=high,
        options=ArtOptions(**options),
    )


def test_the_ends_of_the_range_are_masked_and_not_clipped():
    """As in ART, a ratio is kept only strictly inside the range; a ratio on a bound is not clipped."""
    for bounds in ({"low": 0.0, "high": 0.5}, {"low": 0.5, "high": 0.0}):
        at = {"logprobs": tensor([-1.0]), **bounds}
        assert art_loss(tokens(tensor([0.0]), tensor([1.0]), **at)).objective_K.tolist() == [-1.0]
        masked = art_loss(tokens(tensor([0.0]), tensor([1.0]), mask_prob_ratio=True, **at))
        assert masked.objective_K.tolist() == [0.0]
        touched = art_loss(tokens(tensor([0.0]), tensor([1.0]), **bounds))
        assert [end.tolist() for end in touched[1:]] == [[False], [False]]


@pytest.mark.parametrize(
    ("ppo", "low", "high"),
    [
        (True, [False, True, False, False], [True, False, False, False]),
        (False, [False, True, False, True], [True, False, True, False]),
    ],
)
def test_clipped_tokens_are_counted(ppo, low, high):
    """With `ppo`, tokens that lose their gradient count; with `cispo`, both ends do, whatever the advantage."""
    found = art_loss(tokens(tensor([2.0, 0.5, 2.0, 0.5]).log(), tensor([1.0, -1.0, -1.0, 1.0]), ppo=ppo))
    assert [end.tolist() for end in found[1:]] == [low, high]
