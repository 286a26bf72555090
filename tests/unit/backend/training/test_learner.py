"""The whole update: its invariances, its checks, and that a failed update leaves no trace."""

import re
from functools import partial
from itertools import product
from random import Random

import pytest
import torch

from fakes.training_batches import random_groups, shifted
from nat.art.server.algorithm import ArtOptions
from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.batch import make_batch
from nat.backend.training.learner import Learner
from nat.backend.training.mismatch import served_logprobs
from nat.errors import UpdateRejected
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout


def weights(loaded):
    return {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}


def gradient(make_learner, loaded, groups, **options):
    """The gradient of one update just before AdamW uses it."""
    caught = {}

    class Stop(Exception):
        pass

    learner = make_learner(loaded)

    def catch(max_norm):
        caught.update({name: p.grad.clone() for name, p in loaded.trainable_parameters().items()})
        raise Stop

    learner.optimizer.clip = catch
    with pytest.raises(Stop):
        learner.update(groups, resolve(TrainingConfig(**options)))
    return caught


def largest_gap(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def art(**options):
    """ART's algorithm with these options; the default's advantages and clip range."""
    own = {name: value for name, value in options.items() if name in ArtOptions.model_fields}
    rest = {name: value for name, value in options.items() if name not in own}
    default = {"advantage": "dr_grpo", "normalize_advantages": True, "epsilon": 0.2, "epsilon_high": 0.28}
    return {"algorithm": "art", **default, **rest, "options": own}


CHOICES = [
    {"advantage": advantage, "policy_loss": loss, "importance_sampling_level": level, "aggregation": aggregation}
    for advantage, (loss, level), aggregation in product(
        ["rloo"], [("clip", "token"), ("cispo", "sequence")], ["token_mean", "seq_mean", "constant"]
    )
]


CHOICES += [
    art(importance_sampling_level="average", kl_penalty_coef=0.3, old_logprobs="learner"),
    art(importance_sampling_level="geometric_average"),
    art(kimi_k2_tau=0.5, mask_prob_ratio=True),
    art(ppo=True, max_negative_advantage_importance_sampling_weight=0.99),
]


@pytest.mark.parametrize(
    "choice",
    [CHOICES[0], *(pytest.param(choice, marks=pytest.mark.slow) for choice in CHOICES[1:])],
    ids=lambda c: "-".join(map(str, c.values())),
)
def test_gradient_does_not_depend_on_the_split(make_learner, loaded64, choice):
    """Gradients of micro-batches of any size sum to the gradient of the whole batch."""
    groups = noisy(random_groups(loaded64, rows=2), 0.1)
    choice = {**choice, "max_logprob_difference": 10}
    whole = gradient(make_learner, loaded64, groups, micro_batch_tokens=100_000, beta=0.1, **choice)
    for tokens in (1, 30, 100):
        split = gradient(make_learner, loaded64, groups, micro_batch_tokens=tokens, beta=0.1, **choice)
        assert largest_gap(whole, split) < 1e-10
    assert max(float(g.abs().max()) for g in whole.values()) > 1e-4


def test_gradient_does_not_depend_on_shared_prompts(make_learner, loaded64):
    """A prompt that is computed once for its group gets the gradients of all answers and of their first tokens.

    The gradients agree up to rounding: the norms of this model compute in fp32 even here.
    """
    groups = noisy(random_groups(loaded64, prompt=12), 0.1)
    choice = {"beta": 0.1, "max_logprob_difference": 10}
    shared = gradient(make_learner, loaded64, groups, micro_batch_tokens=100_000, **choice)
    alone = gradient(make_learner, loaded64, groups, micro_batch_tokens=1, **choice)
    assert largest_gap(shared, alone) < 1e-6
    assert max(float(g.abs().max()) for g in alone.values()) > 1e-1


def noisy(groups, by):
    """The same groups with another sampler's log probabilities and a weight for each rollout."""
    random = Random(1)
    text = [g.model_dump() for g in groups]
    for group in text:
        for rollout in group["rollouts"]:
            rollout["weight"] = random.uniform(0.5, 2)
            for row in rollout["rows"]:
                for span in row["spans"]:
                    span["logprobs"] = [p + random.uniform(-by, by) for p in span["logprobs"]]
    return [TrainingGroup.model_validate(g) for g in text]


def test_equal_groups_are_left_out(make_learner, loaded64):
    """A group of equal rewards changes neither numerator nor denominator; the metrics count the remaining groups."""
    groups = random_groups(loaded64)
    flat = TrainingGroup(
        id="flat",
        rollouts=[TrainingRollout(reward=1.0, rows=r.rows) for r in random_groups(loaded64, seed=9)[0].rollouts],
    )
    with_flat = [groups[0], flat, *groups[1:]]
    assert largest_gap(gradient(make_learner, loaded64, groups), gradient(make_learner, loaded64, with_flat)) == 0
    metrics = make_learner(loaded64).update(with_flat, resolve(TrainingConfig()))
    assert metrics["trained_groups"] == 3


@pytest.mark.parametrize("steps", [{}, {"num_iterations": 2, "steps_per_batch": 2, "beta": 0.01}])
def test_same_batch_same_weights(make_learner, checkpoint, loaded, steps):
    """The same weights, batch and seed give bitwise the same new weights."""
    groups = random_groups(loaded)
    results = []
    for _ in range(2):
        fresh = load_model(checkpoint, device="cpu")
        make_learner(fresh).update(groups, resolve(TrainingConfig(learning_rate=1e-3, **steps)))
        results.append(weights(fresh))
    assert largest_gap(*results) == 0
    assert largest_gap(results[0], weights(loaded)) > 0


def test_update_raises_the_probability_of_rewarded_rollouts(make_learner, loaded):
    """In each group the better rollout gets likelier and the worse one less likely."""
    groups = random_groups(loaded, groups=2, rollouts=2)
    rows = make_batch(groups, resolve(TrainingConfig())).rows
    before = served_logprobs(loaded, rows)
    metrics = make_learner(loaded).update(groups, resolve(TrainingConfig(learning_rate=1e-3)))
    after = served_logprobs(loaded, rows)
    for row in rows:
        assert float((after[row.index] - before[row.index]).sum()) * row.advantages[0] > 0
    assert metrics["logprob_diff_mean"] < 1e-5
    assert metrics["served_diff_mean"] < 1e-5
    assert metrics["approx_kl"] > 0
    assert metrics["clip_fraction_low"] == metrics["clip_fraction_high"] == 0
    assert metrics["effective_sample_size"] == pytest.approx(1, abs=1e-5)


BASE = {
    "learning_rate": 1e-3,
    "warmup_steps": 0,
    "adam_epsilon": 1e-3,
    "num_iterations": 2,
    "max_logprob_difference": 100,
    "max_kl": None,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    [
        {"learning_rate": 2e-3},
        {"warmup_steps": 5},
        {"decay_steps": 1},
        {"advantage": "grpo", "normalize_advantages": False},
        {"normalize_advantages": False},
        {"importance_sampling_level": "sequence"},
        {"policy_loss": "cispo"},
        {"aggregation": "seq_mean"},
        {"aggregation": "constant"},
        {"aggregation": "constant", "max_completion_length": 7},
        {"epsilon": 1e-6},
        {"epsilon_high": 1e-6},
        {"beta": 0.5},
        {"importance_sampling_cap": 0.5},
        {"num_iterations": 3},
        {"steps_per_batch": 2},
        {"steps_per_batch": 2, "seed": 3},
        {"max_grad_norm": 1e-3},
        {"weight_decay": 0.5},
        {"adam_beta1": 0.1},
        {"adam_beta2": 0.5},
        {"adam_epsilon": 1e-2},
        {"mask_truncated_completions": True},
        {"algorithm": "gspo"},
        {"old_logprobs": "sampler"},
        {"tokens_per_step": 100},
        art(importance_sampling_level="average"),
        art(importance_sampling_level="geometric_average"),
        art(ppo=True),
        art(mask_prob_ratio=True, epsilon=1e-2),
        art(max_negative_advantage_importance_sampling_weight=0.9),
        art(kimi_k2_tau=0.5),
        art(num_trajectories_learning_rate_multiplier_power=0.5),
    ],
    ids=str,
)
def test_every_option_has_an_effect(make_learner, checkpoint, loaded, option):
    """Each option of the algorithm changes the weights of an update."""
    groups = noisy(random_groups(loaded, groups=4), 0.1)
    groups[0].rollouts[0].truncated = True
    plain = {name: value for name, value in option.items() if name in {"aggregation", "steps_per_batch"}}
    if "options" in option:
        plain = option | {"options": {}}
    results = []
    for config in ({**BASE, **option}, {**BASE, **(plain if len(option) > len(plain) or "options" in option else {})}):
        fresh = load_model(checkpoint, device="cpu")
        make_learner(fresh).update(groups, resolve(TrainingConfig(**config)))
        results.append(weights(fresh))
    assert largest_gap(*results) > 0


def test_lora_trains_the_adapter_only(make_learner, lora):
    """With LoRA the base stays unchanged and is the reference of the KL."""
    base = {n: p.detach().clone() for n, p in lora.model.named_parameters() if not p.requires_grad}
    before = weights(lora)
    metrics = make_learner(lora).update(random_groups(lora), resolve(TrainingConfig(learning_rate=1e-3, beta=0.1)))
    assert largest_gap(base, dict(lora.model.named_parameters())) == 0
    assert largest_gap(before, weights(lora)) > 0
    assert metrics["reference_kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all weights", "adapter"])
def test_a_phase_begins_anew_on_the_trained_weights(make_learner, checkpoint, kind):
    """Its first update is that of a new learner with these weights: optimizer state, warmup, reference; steps go on."""
    policy = load_model(checkpoint, device="cpu", lora=LoraSettings(rank=4) if kind == "adapter" else None)
    learner, groups = make_learner(policy), random_groups(policy)
    first = TrainingConfig(learning_rate=3e-3, max_logprob_difference=100, max_kl=None)
    for _ in range(3):
        learner.update(groups, resolve(first))
    fresh = load_model(checkpoint, device="cpu", lora=LoraSettings(rank=4) if kind == "adapter" else None)
    with torch.no_grad():
        for name, parameter in fresh.trainable_parameters().items():
            parameter.copy_(policy.trainable_parameters()[name])
    # A learner of the fresh model measures no KL, so that it needs no reference.
    config = first.model_copy(update={"warmup_steps": 4, "adam_beta1": 0.5})
    expected = make_learner(fresh).update(groups, resolve(config))
    second = resolve(config.model_copy(update={"beta": 1e-12}))
    learner.begin_phase(second)
    metrics = learner.update(groups, second)
    assert metrics["learning_rate"] == expected["learning_rate"] == 3e-3 / 4
    assert metrics["reference_kl"] == pytest.approx(0, abs=1e-6)
    assert largest_gap(weights(policy), weights(fresh)) < 1e-6
    assert learner.step == 4
    assert learner.update(groups, second)["reference_kl"] > 1e-5


class Sampler:
    """Scores on the served path until it is `stale`: then updates do not reach it."""

    def __init__(self):
        self.stale = False

    def __call__(self, loaded, rows):
        if self.stale:
            return {row.index: torch.tensor(row.sampler_logprobs) - 1.0 for row in rows}
        return served_logprobs(loaded, rows)


def rejected_by_sampler(make_learner, loaded, config):
    """As `rejected`, with a sampler that goes stale before the update."""
    sampler = Sampler()

    def spoil(_):
        sampler.stale = True

    groups = partial(random_groups, loaded)
    return rejected(partial(make_learner, sampler_score=sampler), loaded, groups, config, break_learner=spoil)


def rejected(make_learner, loaded, groups, config, *, break_learner=lambda _: None):
    """Run an update that must be rejected and check that weights, moments and step are unchanged."""
    learner: Learner = make_learner(loaded)
    learner.update(random_groups(loaded, seed=5), resolve(TrainingConfig(learning_rate=1e-4)))
    before, state, step = weights(loaded), {n: t.clone() for n, t in learner.optimizer.state().items()}, learner.step
    break_learner(learner)
    with pytest.raises(UpdateRejected) as error:
        learner.update(groups(), resolve(config))
    assert largest_gap(before, weights(loaded)) == 0
    assert largest_gap(state, learner.optimizer.state()) == 0
    assert learner.step == step
    assert error.value.hint
    return error.value


def test_an_update_that_moves_the_policy_too_far_is_shortened(make_learner, checkpoint):
    """The unasked KL divergence stays below `max_kl`; the weights are those of a lower learning rate."""
    config = {"learning_rate": 3e-2, "max_served_difference": 100, "warmup_steps": 0}
    metrics, after = [], []
    for limit in (None, 0.01):
        loaded = load_model(checkpoint, device="cpu")
        learner = make_learner(loaded)
        metrics.append(learner.update(random_groups(loaded), resolve(TrainingConfig(**config, max_kl=limit))))
        after.append((learner.step, weights(loaded)))
    free, bound = metrics
    assert free["unasked_kl"] > 0.01 >= bound["unasked_kl"]
    assert (free["kept_share"], free["shortenings"], free["learning_rate"]) == (1, 0, 3e-2)
    assert 1 <= bound["shortenings"] <= 5
    assert bound["learning_rate"] == pytest.approx(3e-2 * bound["kept_share"])
    assert after[0][0] == after[1][0] == 1
    fresh = load_model(checkpoint, device="cpu")
    slow = TrainingConfig(**config | {"learning_rate": bound["learning_rate"]}, max_kl=None)
    make_learner(fresh).update(random_groups(fresh), resolve(slow))
    assert largest_gap(weights(fresh), after[1][1]) < 1e-6


def test_stopping_leaves_no_trace(make_learner, loaded):
    """An exception from `report`, even between two steps, leaves weights, moments and step unchanged."""
    learner, before = make_learner(loaded), weights(loaded)

    def stop(percent):
        if percent > 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.update(
            random_groups(loaded), resolve(TrainingConfig(num_iterations=3, micro_batch_tokens=20)), report=stop
        )
    assert largest_gap(before, weights(loaded)) == 0
    assert (learner.step, learner.optimizer.state()) == (0, {})


def test_each_step_reports_its_own_metrics(make_learner, loaded):
    """`on_step` gets each optimizer step in order and their number; the job's values are means over the steps."""
    seen = []
    config = TrainingConfig(steps_per_batch=3, learning_rate=1e-3, warmup_steps=3, max_kl=None)
    metrics = make_learner(loaded).update(random_groups(loaded), resolve(config), on_step=seen.append)
    assert [step["learning_rate"] for step in seen] == pytest.approx([1e-3 / 3, 2e-3 / 3, 1e-3])
    assert [step["num_gradient_steps"] for step in seen] == [3, 3, 3]
    for name in ("loss", "policy_loss", "grad_norm", "update_ratio"):
        assert sum(step[name] for step in seen) / 3 == pytest.approx(metrics[name])
    assert len({step["entropy"] for step in seen}) == 3
    assert {"logprob_diff_mean", "clip_fraction_low"} <= seen[0].keys()


def given_groups(loaded, advantages, weights=None):
    """A group of rollouts with equal rewards and given advantages."""
    rollouts = random_groups(loaded, groups=1, rollouts=len(advantages))[0].rollouts
    made = [
        TrainingRollout(reward=0.0, rows=r.rows, advantage=a, weight=w)
        for r, a, w in zip(rollouts, advantages, weights or [1.0] * len(rollouts), strict=True)
    ]
    return [TrainingGroup(id="given", rollouts=made)]


GIVEN = {
    "advantage": "given",
    "normalize_advantages": False,
    "old_logprobs": "sampler",
    "importance_sampling_cap": None,
}


def test_a_weight_is_a_factor_of_the_gradient(make_learner, loaded64):
    """A rollout's weight multiplies its part of the gradient, as its advantage does, and not the denominator."""
    better, worse, both = (
        gradient(make_learner, loaded64, given_groups(loaded64, *shares), **GIVEN)
        for shares in (([2.0, 0.0],), ([0.0, -1.0],), ([1.0, -1.0], (2.0, 3.0)))
    )
    assert max(float((both[n] - better[n] - 3 * worse[n]).abs().max()) for n in both) < 1e-6
    assert max(float(g.abs().max()) for g in both.values()) > 1e-2


def multiplied(loaded, factor):
    """Has every gradient multiplied."""

    def spoil(_):
        for parameter in loaded.trainable_parameters().values():
            parameter.register_hook(lambda grad: grad * factor)

    return spoil


OFF = {"old_logprobs": "sampler", "max_logprob_difference": 10, "max_served_difference": 0.05}
ALARMS = {
    "another sampler": (-0.3, 1.0, {}, "logprob_mismatch", r"0\.3"),
    "another sampler, whose own are the old": (
        -0.3,
        1.0,
        {"old_logprobs": "sampler"},
        "logprob_mismatch",
        "",
    ),
    "an infinite gradient": (0.0, float("inf"), {}, "gradient_not_finite", ""),
    "no gradient": (0.0, 0.0, {}, "gradient_zero", ""),
    "all tokens clipped": (
        *(0.0, 1.0, art(mask_prob_ratio=True, epsilon=0.0, epsilon_high=0.0)),
        *("gradient_zero", "100% of the tokens have an advantage"),
    ),
    "no step": (0.0, 1.0, {"learning_rate": 1e-30}, "weights_unchanged", ""),
}


@pytest.mark.parametrize(("shift", "factor", "options", "kind", "words"), ALARMS.values(), ids=ALARMS)
def test_what_is_wrong_with_an_update_is_an_alarm(make_learner, loaded, shift, factor, options, kind, words):
    """The job fails with the kind and the numbers, before or after the step; nothing has changed."""
    groups = partial(shifted, random_groups(loaded), shift)
    spoil = multiplied(loaded, factor)
    error = rejected(make_learner, loaded, groups, TrainingConfig(**options), break_learner=spoil)
    assert error.kind == kind
    assert re.search(words, str(error))


@pytest.mark.parametrize("options", [{}, OFF])
def test_a_sampler_with_old_weights_is_an_alarm(make_learner, loaded, options):
    """If the sampler does not use the new weights, the update is undone, however old the answers may be."""
    error = rejected_by_sampler(make_learner, loaded, TrainingConfig(**options))
    assert error.kind == "logprob_mismatch"
    assert "after the update" in str(error)
