"""Jobs that overlap with requests, fail and are canceled: only completed jobs leave a trace in the weights."""

from random import Random

import pytest
import torch

from fakes.families import make_tiny_family
from fakes.listeners import Waiter
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.inference.engine import Engine
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.backend.lora import LoraSettings
from nat.backend.path_checks import load_checked_model
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.jobs import TrainingJobs
from nat.wire.training import JobStatus, TrainingConfig, TrainingJob

SECONDS = 60


def random_job(number: int, model, random: Random) -> TrainingJob:
    """A job of several micro-batches; about a quarter of them fail the comparison with the sampler."""
    config = TrainingConfig(
        learning_rate=1e-2,
        max_logprob_difference=random.choice([1e-9, 100, 100, 100]),
        max_served_difference=1e-3,
        micro_batch_tokens=random.choice([20, 60]),
        num_iterations=random.choice([1, 2]),
        steps_per_batch=random.choice([1, 2]),
        beta=random.choice([0, 0.1]),
        gradient_checkpointing=random.choice([True, False]),
    )
    groups = random_groups(model, groups=2, seed=number)
    return TrainingJob(id=f"job-{number}", groups=groups, config=config)


def random_request(random: Random) -> Request:
    prompt = [random.randrange(250) for _ in range(random.randrange(1, 40))]
    params = SamplingParams(max_tokens=random.randrange(1, 20), ignore_eos=True)
    return Request([Sequence(0, prompt, params)], Waiter(), model="m")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    """A model with linear attention, which takes the plain path."""
    return make_tiny_family(tmp_path_factory.mktemp("hybrid"), "qwen3_5_text", max_position_embeddings=512)


@pytest.mark.parametrize(("folder", "adapter"), [("checkpoint", False), ("checkpoint", True), ("hybrid", False)])
def test_the_weights_are_those_of_the_completed_jobs_alone(folder, adapter, request, make_learner, tmp_path):
    """Trained one after another without requests, the completed jobs give the same weights and optimizer state."""
    lora = LoraSettings(rank=4) if adapter else None
    path = request.getfixturevalue(folder)
    model, alone = (load_checked_model(path, device="cpu", lora=lora) for _ in range(2))
    worker, learner, twin = Worker(Engine(model, policy_version="m@0")), make_learner(model), make_learner(alone)
    saved = Checkpoints(tmp_path / "checkpoints", keep_last=1)
    jobs = TrainingJobs(worker, learner, saved, output_dir=tmp_path, save_every=5)
    random = Random(int(adapter))
    submitted = [random_job(number, alone, random) for number in range(12)]
    requests = [random_request(random) for _ in range(60)]
    for number, job in enumerate(submitted):
        jobs.submit(job)
        for asked in requests[5 * number : 5 * number + 5]:
            worker.submit(asked)
        if number % 4 == 3:
            jobs.cancel(submitted[random.randrange(number)].id)
    for asked in requests:
        assert asked.listener.done.wait(SECONDS)
    for job in submitted:
        jobs.find(job.id).finished.result(SECONDS)
    states = [jobs.get(job.id).status for job in submitted]
    completed = [job for job, state in zip(submitted, states, strict=True) if state is JobStatus.COMPLETED]
    jobs.close()
    assert {JobStatus.COMPLETED, JobStatus.FAILED} <= set(states)
    assert all(asked.listener.error is None and asked.finished for asked in requests)
    for job in completed:
        twin.update(job.groups, resolve(job.config))
    assert learner.step == twin.step
    for one, other in (
        (model.trainable_parameters(), alone.trainable_parameters()),
        (learner.optimizer.state(), twin.optimizer.state()),
    ):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
