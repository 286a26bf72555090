"""One copy of the weights serves while the other is trained; a batch is compared with the weights that sampled it."""

from random import Random

import pytest
import torch

from fakes.tiny_fixtures import load_again
from fakes.training_batches import random_groups
from fakes.training_rows import spans_of
from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.training.batch import make_batch
from nat.backend.training.mismatch import served_logprobs
from nat.backend.training.weight_pair import WeightPair
from nat.errors import UpdateRejected
from nat.wire.training import TrainingConfig, TrainingGroup

SETTINGS = resolve(TrainingConfig(learning_rate=3e-2, steps_per_batch=2, max_kl=None))


@pytest.fixture(params=["all weights", "adapter"])
def model(request, loaded, lora):
    return loaded if request.param == "all weights" else lora


@pytest.fixture
def twin(model, checkpoint):
    """The same model once more."""
    return load_again(checkpoint, device="cpu", lora=LoraSettings(rank=4) if model.peft else None)


@pytest.fixture
def pair(model):
    return WeightPair(model.trainable_parameters(), version="m@0")


def weights(model):
    return {name: p.detach().clone() for name, p in model.trainable_parameters().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def sampled_by(groups: list[TrainingGroup], version: str | None) -> list[TrainingGroup]:
    """The same groups, whose tokens name the weights that sampled them."""
    groups = [group.model_copy(deep=True) for group in groups]
    for span in spans_of(groups):
        span.policy_version = version
    return groups


def test_the_served_weights_stay_during_an_update_and_change_at_its_end(model, pair, make_learner):
    """What `serving` puts in place is the model of before, at every micro-batch of every step; its memory stays."""
    before, seen = weights(model), []
    places = {name: p.data_ptr() for name, p in model.trainable_parameters().items()}

    def report(_):
        with pair.serving():
            seen.append(same(weights(model), before))

    metrics = make_learner(model).update(random_groups(model), SETTINGS, report=report, pair=pair)
    assert metrics["optimizer_steps"] == 2
    assert len(seen) > 2
    assert all(seen)
    assert not same(weights(model), before)
    assert {name: p.data_ptr() for name, p in model.trainable_parameters().items()} == places
    with pair.earlier("m@0"):
        assert same(weights(model), before)


def test_answers_during_an_update_come_from_the_served_model(model, pair, make_learner):
    """Also while the reference is scored: with an adapter, the reference is the model with the adapter switched off."""
    settings = resolve(TrainingConfig(learning_rate=3e-2, steps_per_batch=2, beta=0.1, max_kl=None))
    make_learner(model).update(random_groups(model), settings)  # an adapter that changes nothing would prove nothing
    rows = make_batch(random_groups(model), settings).rows[:2]
    before, seen = served_logprobs(model, rows), []

    def report(_):
        with pair.serving():
            now = served_logprobs(model, rows)
        seen.append(all(torch.equal(now[index], before[index]) for index in before))

    make_learner(model).update(random_groups(model, seed=3), settings, report=report, pair=pair)
    assert len(seen) == 4
    assert all(seen)


@pytest.mark.parametrize("max_kl", [None, 1e-3])
def test_an_update_with_a_pair_gives_the_same_weights(model, pair, make_learner, twin, max_kl):
    """Training the second copy gives the same weights as training the only one, also if updates are shortened."""
    learner, other = make_learner(model), make_learner(twin)
    settings = resolve(TrainingConfig(learning_rate=3e-2, steps_per_batch=2, max_kl=max_kl))
    kept = 1.0
    for seed in range(2):
        groups = random_groups(model, seed=seed)
        kept = min(kept, learner.update(groups, settings, pair=pair)["kept_share"])
        pair.version = f"m@{seed + 1}"
        other.update(groups, settings)
        assert same(weights(model), weights(twin))
    assert (kept < 1) == (max_kl is not None)


def test_a_failed_update_leaves_the_served_weights(model, pair, make_learner):
    """The first copy was never trained, and the pair knows of no earlier weights."""
    before, learner = weights(model), make_learner(model)

    def fail(percent):
        if percent > 60:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        learner.update(random_groups(model), SETTINGS, report=fail, pair=pair)
    assert same(weights(model), before)
    assert (learner.step, pair.earlier_weights) == (0, {})
    assert learner.update(random_groups(model), SETTINGS, pair=pair)["optimizer_steps"] == 2


def test_requests_are_finished_before_the_weights_change(loaded, make_learner):
    """The last call before the exchange still finds the old weights in place."""
    before, found = weights(loaded), []
    pair = WeightPair(
        loaded.trainable_parameters(),
        version="m@0",
        finish_begun=lambda: found.append(same(weights(loaded), before)),
    )
    make_learner(loaded).update(random_groups(loaded), SETTINGS, pair=pair)
    assert found == [True]


def test_stale_tokens_are_compared_with_the_weights_that_sampled_them(loaded, make_learner):
    """A batch of one update ago passes the alarm by its own weights; said to be current, the same batch fails it."""
    pair, learner = WeightPair(loaded.trainable_parameters(), version="m@0"), make_learner(loaded)
    old = random_groups(loaded, seed=1)
    learner.update(random_groups(loaded), SETTINGS, pair=pair)
    pair.version = "m@1"
    with pytest.raises(UpdateRejected, match="differ from the model's"):
        learner.update(sampled_by(old, "m@1"), SETTINGS, pair=pair)
    pair.earlier_weights = {"m@0": weights(loaded)}  # the failed update has lost the copy
    with pytest.raises(UpdateRejected, match="differ from those of the weights m@0 that sampled"):
        learner.update(sampled_by(old, "m@0"), SETTINGS, pair=pair)


def test_a_stale_batch_is_trained(loaded, make_learner):
    """Its difference to its own weights is tiny, and the weights in the ratio differ from one."""
    pair, learner = WeightPair(loaded.trainable_parameters(), version="m@0"), make_learner(loaded)
    old = sampled_by(random_groups(loaded, seed=1), "m@0")
    learner.update(random_groups(loaded), SETTINGS, pair=pair)
    pair.version = "m@1"
    metrics = learner.update(old, SETTINGS, pair=pair)
    assert metrics["logprob_diff_mean"] < 1e-5
    assert metrics["effective_sample_size"] < 0.999


def test_wrong_log_probabilities_of_stale_tokens_fail_the_update(loaded, make_learner):
    """The alarm is not silent for stale tokens: they are scored with the weights of one update ago."""
    pair, learner = WeightPair(loaded.trainable_parameters(), version="m@0"), make_learner(loaded)
    old = sampled_by(random_groups(loaded, seed=1), "m@0")
    learner.update(random_groups(loaded), SETTINGS, pair=pair)
    pair.version = "m@1"
    random = Random(0)
    for span in spans_of(old):
        span.logprobs = [value - random.random() for value in span.logprobs]
    with pytest.raises(UpdateRejected, match="the weights m@0 that sampled on the same tokens"):
        learner.update(old, SETTINGS, pair=pair)


@pytest.mark.parametrize("version", [None, "m@1", "m@2", "other@0"])
def test_tokens_of_unknown_weights_are_compared_with_the_current_ones(loaded, make_learner, version):
    """Without a version of this model's past, an old batch fails the alarm as it does without a pair."""
    learner = make_learner(loaded)
    old = sampled_by(random_groups(loaded, seed=1), version)
    learner.update(random_groups(loaded), SETTINGS)
    pair = WeightPair(loaded.trainable_parameters(), version="m@1")
    with pytest.raises(UpdateRejected, match="differ from the model's"):
        learner.update(old, SETTINGS, pair=pair)


def test_tokens_of_weights_that_a_restart_has_lost_are_trained(loaded, make_learner):
    """They cannot be compared until as many updates as are looked back on have passed; then such tokens fail."""
    learner, old = make_learner(loaded), [sampled_by(random_groups(loaded, seed=seed), "m@0") for seed in (1, 2)]
    learner.update(random_groups(loaded), SETTINGS)
    pair = WeightPair(loaded.trainable_parameters(), version="m@1")
    metrics = learner.update(old[0], SETTINGS, pair=pair)
    assert "logprob_diff_mean" not in metrics
    assert metrics["effective_sample_size"] < 0.999
    pair.version = "m@2"
    with pytest.raises(UpdateRejected, match="differ from the model's"):
        learner.update(old[1], SETTINGS, pair=pair)


@pytest.mark.parametrize("kept", [2, 3])
def test_each_token_is_compared_with_the_weights_that_sampled_it(loaded, make_learner, kept):
    """Of batches from each of the last updates' weights all pass, and the copies are no more than the bound."""
    pair, learner = WeightPair(loaded.trainable_parameters(), version="m@0", kept=kept), make_learner(loaded)
    mixed = []
    for step in range(kept + 1):
        mixed += sampled_by(random_groups(loaded, seed=10 + step), f"m@{step}")
        learner.update(sampled_by(random_groups(loaded, seed=step), f"m@{step}"), SETTINGS, pair=pair)
        pair.version = f"m@{step + 1}"
    assert [*pair.earlier_weights] == [f"m@{step}" for step in range(1, kept + 1)]
    oldest = [group for group in mixed if any(span.policy_version == "m@0" for span in spans_of([group]))]
    known = [group for group in mixed if group not in oldest]
    assert learner.update(known, SETTINGS, pair=pair)["logprob_diff_mean"] < 1e-5
    pair.version = f"m@{kept + 2}"
    with pytest.raises(UpdateRejected, match="differ from the model's"):
        learner.update(oldest, SETTINGS, pair=pair)


def test_a_row_of_two_versions_compares_each_token_with_its_own(loaded, make_learner):
    """The first tokens come from the weights before, the last from the current ones; each fits its own."""
    pair, learner = WeightPair(loaded.trainable_parameters(), version="m@0"), make_learner(loaded)
    old = random_groups(loaded, seed=1)
    learner.update(random_groups(loaded), SETTINGS, pair=pair)
    pair.version = "m@1"
    new = random_groups(loaded, seed=1)
    pairs = zip(
        (row for group in old for rollout in group.rollouts for row in rollout.rows),
        (row for group in new for rollout in group.rollouts for row in rollout.rows),
        strict=True,
    )
    for before, after in pairs:
        assert before.token_ids == after.token_ids
        after.spans[0].logprobs = before.spans[0].logprobs
        for number, span in enumerate(after.spans):
            span.policy_version = "m@1" if number else "m@0"
    assert learner.update(new, SETTINGS, pair=pair)["logprob_diff_mean"] < 1e-5
