"""Updates on a server are those of the embedded learner."""

import pytest
import torch

from fakes.tiny_fixtures import mostly_slow
from fakes.training_batches import random_groups
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.batch import make_batch
from nat.backend.training.learner import Learner
from nat.backend.training.mismatch import Probe
from nat.backend.training.optimizer import usual_learning_rate
from nat.backend.training.reference import Reference
from nat.errors import EngineFailed, UpdateRejected
from nat.tinker.remote.engine import RemoteEngine
from nat.tinker.remote.learner import TinkerLearner
from nat.tinker.remote.serve import _without_weights
from nat.tinker.remote.service import Trained
from nat.wire.training import TrainingConfig

RATE = 3e-3
ALGORITHMS = ["grpo", "dr_grpo", "rloo", "cispo", "gspo", "sft", "dapo"]


@pytest.fixture
def remote(start, remote_options):
    """A learner on a fake server of a kind."""

    def begin(*, rank=4, **kind):
        service, options = start(all_weights=rank == 0, **kind), remote_options(lora_rank=rank)
        loaded = _without_weights(options, options.model)
        trained = Trained(service, rank=rank, seed=1).begin()
        engine = RemoteEngine(loaded, "tiny@0", trained.sampler, at_a_time=4)
        return TinkerLearner(loaded, trained, Probe(engine.score)), engine

    return begin


@pytest.mark.parametrize("divides", ["", "rows"])
@pytest.mark.parametrize("algorithm", mostly_slow(ALGORITHMS, "grpo", "gspo"))
def test_an_update_is_that_of_the_embedded_learner(remote, tiny_dir, algorithm, divides):
    """Two steps on rows of unequal lengths give the same metrics and log probabilities, however the server divides."""
    learner, _ = remote(divides=divides)
    base = load_model(tiny_dir("qwen2"), device="cpu", dtype="float32")
    groups = random_groups(base, groups=4)
    config = TrainingConfig(algorithm=algorithm, learning_rate=RATE, warmup_steps=1, steps_per_batch=2, epsilon=0.01)
    if algorithm == "sft":
        config = TrainingConfig(algorithm=algorithm, learning_rate=RATE, warmup_steps=1, steps_per_batch=2)
    seen = learner.update(groups, learner.resolved(config))

    check_embedded(tiny_dir, groups, learner, config, seen, lora=LoraSettings(4, 32))


def check_embedded(tiny_dir, groups, learner, config, seen, *, lora):
    own = load_model(tiny_dir("qwen2"), device="cpu", dtype="float32", lora=lora, seed=1)
    embedded = Learner(own, Reference(own, lambda: own.model))
    wanted = embedded.update(groups, learner.resolved(config))
    for name in ("loss", "grad_norm", "approx_kl", "logprob_diff_mean", "advantage_size"):
        assert seen[name] == pytest.approx(wanted[name], rel=2e-3, abs=1e-6), name
    assert {"entropy", "update_ratio"}.isdisjoint(seen)
    assert learner.step == embedded.step == 2


@pytest.mark.parametrize("divides", ["", "rows"])
@pytest.mark.slow
def test_an_update_of_all_weights_is_that_of_the_embedded_learner(remote, tiny_dir, divides):
    """Also after the probe, which trains them and takes that back; the rate is that of all weights."""
    learner, _ = remote(rank=0, divides=divides)
    groups = random_groups(load_model(tiny_dir("qwen2"), device="cpu", dtype="float32"), groups=4)
    config = TrainingConfig(learning_rate=1e-4, warmup_steps=1, steps_per_batch=2)
    check_embedded(tiny_dir, groups, learner, config, learner.update(groups, learner.resolved(config)), lora=None)
    usual = learner.resolved(TrainingConfig()).config.learning_rate
    assert usual == usual_learning_rate(learner._policy.width, lora=False)


def test_an_update_counts_the_tokens_that_the_server_was_sent(remote, tiny_dir):
    """Each row with its gradient in two passes, and scored before and after them; probes at the start are left out."""
    learner, _ = remote()
    groups = random_groups(load_model(tiny_dir("qwen2"), device="cpu", dtype="float32"), groups=4)
    config = learner.resolved(TrainingConfig(algorithm="rloo", learning_rate=RATE, num_iterations=2))
    metrics = learner.update(groups, config)
    assert metrics["server_trained_calls"] == 2
    assert metrics["server_trained_tokens"] == 2 * metrics["row_tokens"]
    assert metrics["server_check_tokens"] > metrics["row_tokens"]


def test_a_loss_is_tried_once(remote, monkeypatch):
    """Each trial begins an adapter, and a server has few places for them."""
    learner, _ = remote()
    client, made = learner.trained.service.client, []
    create = client.create_lora_training_client

    def counted(*args, **more):
        made.append(args)
        return create(*args, **more)

    monkeypatch.setattr(client, "create_lora_training_client", counted)
    for _ in range(3):
        learner.resolved(TrainingConfig(algorithm="gspo", learning_rate=RATE))
    assert len(made) == 2  # the loss, and what the server makes of a batch


@pytest.mark.parametrize("rank", [4, 0])
@pytest.mark.slow
def test_a_failed_update_changes_nothing(remote, tiny_dir, rank):
    """The state before it is reopened, and the next update is as if it had never been."""
    learner, _ = remote(rank=rank, fails=["optim_step"])
    server = learner.trained.service.client
    server.fails.clear()
    resolved = learner.resolved(TrainingConfig(learning_rate=RATE, steps_per_batch=2))
    groups = random_groups(load_model(tiny_dir("qwen2"), device="cpu", dtype="float32"))
    before = learner._scores(rows_of(groups, resolved))
    server.fails.add("optim_step")
    with pytest.raises(EngineFailed, match=r"failed at optim_step: .*the planted failure"):
        learner.update(groups, resolved)
    after = learner._scores(rows_of(groups, resolved))
    assert all(torch.equal(after[index], before[index]) for index in before)
    assert learner.step == 0
    server.fails.clear()
    assert learner.update(groups, resolved)["policy_step"] == 2


def test_answers_of_another_temperature_are_refused(remote, tiny_dir):
    """A server scores at temperature 1."""
    learner, _ = remote()
    groups = random_groups(load_model(tiny_dir("qwen2"), device="cpu", dtype="float32"), temperatures=[0.7])
    with pytest.raises(UpdateRejected, match=r"sampled at temperature 0.7"):
        learner.update(groups, learner.resolved(TrainingConfig()))


def rows_of(groups, resolved):
    return make_batch(groups, resolved).rows
