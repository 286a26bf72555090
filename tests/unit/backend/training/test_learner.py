"""The update as a whole: what it must not depend on, what it proves, and that it leaves no trace when it fails."""

from itertools import product

import pytest
import torch

from fakes.training_batches import random_groups
from nat.backend.model import load_model
from nat.backend.training.batch import make_batch
from nat.backend.training.learner import Learner
from nat.backend.training.served import served_logprobs
from nat.errors import UpdateRejected
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout


def weights(loaded):
    return {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}


def gradient(make_learner, loaded, groups, **options):
    """The gradient of one update, caught in the moment before AdamW uses it."""
    caught = {}

    class Stop(Exception):
        pass

    learner = make_learner(loaded)

    def catch(max_norm):
        caught.update({name: p.grad.clone() for name, p in loaded.trainable_parameters().items()})
        raise Stop

    learner.optimizer.clip = catch
    with pytest.raises(Stop):
        learner.update(groups, TrainingConfig(**options))
    return caught


def largest_gap(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


CHOICES = [
    {"advantage": advantage, "policy_loss": loss, "importance_sampling_level": level, "aggregation": aggregation}
    for advantage, (loss, level), aggregation in product(
        ["rloo"], [("clip", "token"), ("cispo", "sequence")], ["token_mean", "seq_mean", "constant"]
    )
]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: "-".join(c.values()))
def test_gradient_does_not_depend_on_the_split(make_learner, loaded64, choice):
    """Micro-batches of any size, down to one row each, sum to the gradient of the whole batch."""
    groups = random_groups(loaded64, rows=2)
    whole = gradient(make_learner, loaded64, groups, micro_batch_tokens=100_000, beta=0.1, **choice)
    for tokens in (1, 30, 100):
        split = gradient(make_learner, loaded64, groups, micro_batch_tokens=tokens, beta=0.1, **choice)
        assert largest_gap(whole, split) < 1e-10
    assert max(float(g.abs().max()) for g in whole.values()) > 1e-4


def test_gradient_does_not_depend_on_order(make_learner, loaded64):
    """Groups and rollouts in another order give the same gradient."""
    groups = random_groups(loaded64)
    turned = [TrainingGroup(id=g.id, rollouts=g.rollouts[::-1]) for g in groups[::-1]]
    assert largest_gap(gradient(make_learner, loaded64, groups), gradient(make_learner, loaded64, turned)) < 1e-10


def test_equal_groups_are_left_out(make_learner, loaded64):
    """A group of equal rewards changes neither numerator nor denominator; its share is reported."""
    groups = random_groups(loaded64)
    flat = TrainingGroup(
        id="flat",
        rollouts=[TrainingRollout(reward=1.0, rows=r.rows) for r in random_groups(loaded64, seed=9)[0].rollouts],
    )
    with_flat = [groups[0], flat, *groups[1:]]
    assert largest_gap(gradient(make_learner, loaded64, groups), gradient(make_learner, loaded64, with_flat)) == 0
    metrics = make_learner(loaded64).update(with_flat, TrainingConfig())
    assert metrics["zero_variance_fraction"] == 0.25
    assert metrics["zero_variance_all_1_fraction"] == 0.25
    assert metrics["zero_variance_all_0_fraction"] == 0.0
    assert metrics["trained_groups"] == 3


def test_a_batch_without_signal_changes_nothing(make_learner, loaded):
    """If all groups have equal rewards the update is no failure: nothing moves, and the metrics say why."""
    groups = [
        TrainingGroup(id=g.id, rollouts=[TrainingRollout(reward=0.0, rows=r.rows) for r in g.rollouts])
        for g in random_groups(loaded)
    ]
    before, learner = weights(loaded), make_learner(loaded)
    metrics = learner.update(groups, TrainingConfig())
    assert largest_gap(before, weights(loaded)) == 0
    assert (learner.step, metrics["trained_tokens"], metrics["zero_variance_all_0_fraction"]) == (0, 0, 1.0)


@pytest.mark.parametrize("steps", [{}, {"num_iterations": 2, "steps_per_batch": 2, "beta": 0.01}])
def test_same_batch_same_weights(make_learner, checkpoint, loaded, steps):
    """The same weights, batch and seed give bitwise the same new weights."""
    groups = random_groups(loaded)
    results = []
    for _ in range(2):
        fresh = load_model(checkpoint, device="cpu")
        make_learner(fresh).update(groups, TrainingConfig(learning_rate=1e-3, **steps))
        results.append(weights(fresh))
    assert largest_gap(*results) == 0
    assert largest_gap(results[0], weights(loaded)) > 0


def test_update_raises_the_probability_of_what_was_rewarded(make_learner, loaded):
    """After an update the better rollout of each group has become likelier, the worse one less likely."""
    groups = random_groups(loaded, groups=2, rollouts=2)
    rows = make_batch(groups, TrainingConfig()).rows
    before = served_logprobs(loaded, rows)
    metrics = make_learner(loaded).update(groups, TrainingConfig(learning_rate=1e-3))
    after = served_logprobs(loaded, rows)
    for row in rows:
        assert float((after[row.index] - before[row.index]).sum()) * row.advantage > 0
    assert metrics["logprob_diff_mean"] < 1e-5
    assert metrics["served_diff_mean"] < 1e-5
    assert metrics["approx_kl"] > 0
    assert metrics["clip_fraction_low"] == metrics["clip_fraction_high"] == 0
    assert metrics["effective_sample_size"] == pytest.approx(1, abs=1e-5)


BASE = {"learning_rate": 1e-3, "adam_epsilon": 1e-3, "num_iterations": 2, "max_logprob_difference": 100}


@pytest.mark.parametrize(
    "option",
    [
        {"learning_rate": 2e-3},
        {"warmup_steps": 5},
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
    ],
    ids=str,
)
def test_every_option_has_an_effect(make_learner, checkpoint, loaded, option):
    """An option of the algorithm leads to other weights than its default."""
    groups = random_groups(loaded, groups=4)
    groups[0].rollouts[0].truncated = True
    plain = {name: value for name, value in option.items() if name in {"aggregation", "steps_per_batch"}}
    results = []
    for config in ({**BASE, **option}, {**BASE, **(plain if len(option) > len(plain) else {})}):
        fresh = load_model(checkpoint, device="cpu")
        make_learner(fresh).update(groups, TrainingConfig(**config))
        results.append(weights(fresh))
    assert largest_gap(*results) > 0


def test_lora_trains_the_adapter_only(make_learner, lora):
    """With LoRA the base stays as it was, and the reference of the KL is the base."""
    base = {n: p.detach().clone() for n, p in lora.model.named_parameters() if not p.requires_grad}
    before = weights(lora)
    metrics = make_learner(lora).update(random_groups(lora), TrainingConfig(learning_rate=1e-3, beta=0.1))
    assert largest_gap(base, dict(lora.model.named_parameters())) == 0
    assert largest_gap(before, weights(lora)) > 0
    assert metrics["reference_kl"] == pytest.approx(0, abs=1e-6)


def test_reference_is_the_start(make_learner, loaded):
    """The KL is measured against the weights that the backend started from, however late it is asked for."""
    learner, groups = make_learner(loaded), random_groups(loaded)
    config = TrainingConfig(learning_rate=3e-3, max_logprob_difference=100)
    learner.update(groups, config)
    assert learner.update(groups, config.model_copy(update={"beta": 0.1}))["reference_kl"] > 1e-4


def rejected(make_learner, loaded, groups, config, *, break_learner=lambda _: None):
    """Run an update that must be rejected; weights, moments and step must be as before."""
    learner: Learner = make_learner(loaded)
    learner.update(random_groups(loaded, seed=5), TrainingConfig(learning_rate=1e-4))
    before, state, step = weights(loaded), {n: t.clone() for n, t in learner.optimizer.state().items()}, learner.step
    break_learner(learner)
    with pytest.raises(UpdateRejected) as error:
        learner.update(groups(), config)
    assert largest_gap(before, weights(loaded)) == 0
    assert largest_gap(state, learner.optimizer.state()) == 0
    assert learner.step == step
    assert error.value.hint
    return error.value


def shifted(groups, by):
    """The same groups, as if the sampler had reported other log probabilities."""
    text = [g.model_dump() for g in groups]
    for group in text:
        for rollout in group["rollouts"]:
            for row in rollout["rows"]:
                row["logprobs"] = [None if p is None else p + by for p in row["logprobs"]]
    return [TrainingGroup.model_validate(g) for g in text]


def test_wrong_sampler_logprobs_are_an_alarm(make_learner, loaded):
    """Log probabilities that are not the model's (another temperature, other weights) end the job before the step."""
    error = rejected(make_learner, loaded, lambda: shifted(random_groups(loaded), -0.3), TrainingConfig())
    assert error.kind == "logprob_mismatch"
    assert "0.3" in str(error)


def test_infinite_gradient_is_an_alarm(make_learner, loaded):
    """A gradient that is not finite ends the job before the step."""

    def spoil(learner):
        p = next(iter(loaded.trainable_parameters().values()))
        p.register_hook(lambda grad: grad * float("inf"))

    error = rejected(make_learner, loaded, lambda: random_groups(loaded), TrainingConfig(), break_learner=spoil)
    assert error.kind == "gradient_not_finite"


def test_zero_gradient_is_an_alarm(make_learner, loaded):
    """A gradient of exactly zero although rewards differ ends the job."""

    def spoil(learner):
        for p in loaded.trainable_parameters().values():
            p.register_hook(lambda grad: grad * 0)

    error = rejected(make_learner, loaded, lambda: random_groups(loaded), TrainingConfig(), break_learner=spoil)
    assert error.kind == "gradient_zero"


def test_a_step_that_changes_no_weight_is_an_alarm(make_learner, loaded):
    """A learning rate below the precision of the weights is named, and the moments are put back."""
    error = rejected(make_learner, loaded, lambda: random_groups(loaded), TrainingConfig(learning_rate=1e-30))
    assert error.kind == "weights_unchanged"


def test_a_sampler_with_old_weights_is_an_alarm(make_learner, loaded):
    """If the sampler's path does not see the new weights, the update is undone."""

    def spoil(learner):
        learner._sampler_score = lambda rows: {row.index: torch.tensor(row.sampler_logprobs) - 1.0 for row in rows}

    error = rejected(make_learner, loaded, lambda: random_groups(loaded), TrainingConfig(), break_learner=spoil)
    assert error.kind == "logprob_mismatch"
    assert "after the update" in str(error)


def test_stopping_leaves_no_trace(make_learner, loaded):
    """What `report` raises, even after a step of several, leaves weights, moments and step as before."""
    learner, before = make_learner(loaded), weights(loaded)

    def stop(percent):
        if percent > 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.update(random_groups(loaded), TrainingConfig(num_iterations=3, micro_batch_tokens=20), report=stop)
    assert largest_gap(before, weights(loaded)) == 0
    assert (learner.step, learner.optimizer.state()) == (0, {})


def test_progress_reaches_one_hundred(make_learner, loaded):
    """Progress rises to 100, extra passes included."""
    seen = []
    config = TrainingConfig(num_iterations=2, steps_per_batch=2, beta=0.1, micro_batch_tokens=30)
    make_learner(loaded).update(random_groups(loaded), config, report=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 100


def test_warmup_raises_the_learning_rate(make_learner, loaded):
    """The first of four warm-up steps uses a quarter of the rate."""
    metrics = make_learner(loaded).update(random_groups(loaded), TrainingConfig(learning_rate=1e-3, warmup_steps=4))
    assert metrics["learning_rate"] == pytest.approx(2.5e-4)
