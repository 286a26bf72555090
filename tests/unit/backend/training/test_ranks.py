"""A learner with several ranks computes what one process does, and a rank that fails leaves no trace."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from fakes.families import make_tiny_family
from fakes.tiny_fixtures import load_again
from fakes.tiny_model import CONFIGS, make_tiny_model
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.batch import make_batch
from nat.backend.training.ranks import Ranks
from nat.errors import TrainingFailed, UpdateCanceled
from nat.wire.training import TrainingConfig

LORA = LoraSettings(rank=4)
MADE: list[Ranks] = []


def ranks_of(path, folder, count=2, *, lora=None, dtype="float32", shards=False, **options) -> Ranks:
    load = partial(load_model, path, dtype=dtype, max_seq_length=64, lora=lora, **options)
    for each in MADE:
        each.stop()  # a process is in one group; they start again when they are used
    MADE.append(Ranks(load, "cpu", count, logs=folder, shards=shards, idle_seconds=2.0))
    return MADE[-1]


@pytest.fixture(scope="module", params=[False, True], ids=["copies", "shards"])
def ranks(checkpoint, tmp_path_factory, request) -> Iterator[Ranks]:
    """Two ranks that hold all weights, or three, of which two have a part each."""
    ranks = ranks_of(checkpoint, tmp_path_factory.mktemp("ranks"), 2 + request.param, shards=request.param)
    yield ranks
    ranks.stop()


def outcome(make_learner, loaded, groups, ranks=None, **options):
    """The gradients of each step of an update before they are clipped, its metrics, and the weights after it."""
    learner, gradients = make_learner(loaded, ranks=ranks), []
    clip = learner.optimizer.clip

    def caught(max_norm):
        names = learner.optimizer.with_gradient()
        gradients.append({name: g.clone() for name, g in zip(names, learner.optimizer.gradients(names), strict=True)})
        return clip(max_norm)

    learner.optimizer.clip = caught
    metrics = learner.update(groups, resolve(TrainingConfig(**options)))
    return gradients, metrics, {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}


def assert_equal(one, several, tolerance=1e-6):
    """Gradients and metrics agree."""
    for own, other in zip(one[0], several[0], strict=True):
        assert own.keys() == other.keys()
        assert max(float((own[name] - other[name]).abs().max()) for name in own) < tolerance
    for name, value in one[1].items():
        if name not in {"seconds", "tokens_per_second", "packed_tokens"}:
            assert several[1][name] == pytest.approx(value, rel=10 * tolerance, abs=tolerance), name
    assert max(float(g.abs().max()) for g in one[0][0].values()) > 1e-3


def test_two_ranks_give_the_gradient_of_one(make_learner, checkpoint, ranks):
    """All weights, over two steps with a KL term: same gradients, norms and metrics as in one process."""
    options = {"steps_per_batch": 2, "beta": 0.1, "learning_rate": 1e-4}
    found = []
    for each in (None, ranks):
        loaded = load_again(checkpoint, device="cpu")
        found.append(outcome(make_learner, loaded, random_groups(loaded), each, **options))
    assert_equal(*found)
    assert ranks.followers


def test_the_ranks_score_with_the_weights_of_the_round(make_learner, checkpoint, ranks):
    """Not with those of an earlier one that was only scored."""
    loaded, config = load_again(checkpoint, device="cpu"), TrainingConfig()
    learner, rows = make_learner(loaded, ranks=ranks), make_batch(random_groups(loaded), resolve(config)).rows
    for factor in (1.0, 1.5, 0.5):
        with torch.no_grad():
            for parameter in loaded.trainable_parameters().values():
                parameter.mul_(factor)
        alone = make_learner(loaded)._passes.score(rows, config)
        found = learner._passes.score(rows, config)
        assert max(float((found[index] - alone[index]).abs().max()) for index in alone) < 1e-5


def test_a_canceled_update_leaves_the_ranks_usable(make_learner, checkpoint, ranks):
    """What a rank still reports of the round that was given up is dropped by the next one."""
    loaded = load_again(checkpoint, device="cpu")
    learner, groups = make_learner(loaded, ranks=ranks), random_groups(loaded)

    def cancel(_: float) -> None:
        raise UpdateCanceled("canceled")

    with pytest.raises(UpdateCanceled):
        learner.update(groups, resolve(TrainingConfig()), report=cancel)
    followers = list(ranks.followers)
    alone = outcome(make_learner, load_again(checkpoint, device="cpu"), groups)
    assert_equal(alone, outcome(make_learner, load_again(checkpoint, device="cpu"), groups, ranks))
    assert ranks.followers == followers


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_a_lost_rank_ends_the_update_and_takes_it_back(make_learner, checkpoint, ranks, fault):
    """After the first step a rank dies or hangs: an error names it and its log, and the next update works again."""
    loaded = load_again(checkpoint, device="cpu")
    learner, groups = make_learner(loaded, ranks=ranks), random_groups(loaded)
    before = {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}
    resolved = resolve(TrainingConfig(steps_per_batch=2, learning_rate=1e-4))
    ranks.start()
    pid = ranks.followers[0].process.pid
    with pytest.raises(TrainingFailed, match=f"rank 1 of the learner \\(process {pid}, log .*rank_1.log\\)") as caught:
        learner.update(groups, resolved, on_step=lambda _: os.kill(pid, fault))
    assert "rank_1.log" in str(caught.value)
    assert ("has died of signal 9" if fault == signal.SIGKILL else "it did nothing for 2 s") in str(caught.value)
    assert learner.step == 0
    assert all(torch.equal(p, before[name]) for name, p in loaded.trainable_parameters().items())
    assert not ranks.followers
    if fault == signal.SIGKILL:
        learner.update(groups, resolved)
        alone = load_again(checkpoint, device="cpu")
        make_learner(alone).update(groups, resolved)
        ours, theirs = loaded.trainable_parameters(), alone.trainable_parameters()
        assert max(float((ours[name] - theirs[name]).detach().abs().max()) for name in ours) < 2e-4


@pytest.mark.ranks
def test_a_failing_rank_says_why(make_learner, checkpoint, tmp_path):
    """A rank that cannot load its model ends the start with its own error."""
    ranks = ranks_of(checkpoint / "missing", tmp_path)
    with pytest.raises(TrainingFailed, match=r"rank 1 .* failed: .*missing"):
        ranks.start()
    ranks.stop()


CASES = {
    "LoRA": ("qwen2", 2, {"lora": LORA}),
    "LoRA on four bits": ("qwen2", 2, {"lora": LORA, "load_in_4bit": True}),
    "LoRA, one rank without rows": ("llama", 3, {"lora": LORA}),
    "tied embeddings": ("qwen2", 2, {}),
    "untied embeddings": ("llama", 2, {}),
    "all weights, one rank without rows": ("qwen2", 3, {}),
    "experts": ("mixtral", 2, {}),
    "bfloat16": ("qwen2", 2, {"dtype": "bfloat16"}),
}


SHARDED = {
    "untied embeddings": ("llama", 3, {}),
    "tied embeddings, one rank without rows": ("qwen2", 4, {}),
    "one rank with all": ("llama", 2, {}),
    "experts": ("mixtral", 3, {}),
    "bfloat16": ("qwen2", 3, {"dtype": "bfloat16"}),
}


@pytest.mark.ranks
@pytest.mark.parametrize("case", SHARDED.values(), ids=SHARDED)
def test_ranks_with_shards_give_the_gradient_of_one(make_learner, tmp_path, case):
    """By FSDP2 over all but the first rank, also of ranks that have fewer micro-batches, or none."""
    check_gradient(make_learner, tmp_path, case, shards=True)


@pytest.mark.ranks
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ranks_give_the_gradient_of_one(make_learner, tmp_path, case):
    """Rows of unequal length, with a KL penalty; with three ranks and two rows, one rank has none."""
    check_gradient(make_learner, tmp_path, case, shards=False)


def check_gradient(make_learner, tmp_path, case, *, shards):
    """Compare an update by ranks with that of one process: a kind of model, a number of ranks and options."""
    kind, count, options = case
    path = (make_tiny_model if kind in CONFIGS else make_tiny_family)(tmp_path / "model", kind)
    ranks, found = ranks_of(path, tmp_path, count, shards=shards, **options), []
    try:
        for each in (None, ranks):
            loaded = load_again(path, device="cpu", **options)
            groups = random_groups(loaded, groups=1, rollouts=2, prompt=4)
            found.append(outcome(make_learner, loaded, groups, each, kl_penalty_coef=0.1, learning_rate=1e-4))
    finally:
        ranks.stop()
    assert_equal(*found, tolerance=1e-2 if "dtype" in options else 1e-6)


@pytest.mark.ranks
def test_a_dead_rank_is_named_though_another_one_waited_for_it(make_learner, checkpoint, tmp_path):
    """With shards all wait for each other, so the first to complain may not be the one that is lost."""
    ranks, loaded = ranks_of(checkpoint, tmp_path, 3, shards=True), load_again(checkpoint, device="cpu")
    learner = make_learner(loaded, ranks=ranks)
    ranks.start()
    pid = ranks.followers[1].process.pid
    with pytest.raises(TrainingFailed, match=rf"rank 2 .*process {pid}.* has died of signal 9"):
        learner.update(
            random_groups(loaded),
            resolve(TrainingConfig(steps_per_batch=2, learning_rate=1e-4)),
            on_step=lambda _: os.kill(pid, signal.SIGKILL),
        )
    assert not ranks.followers
