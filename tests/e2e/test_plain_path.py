"""A hybrid model on the plain path learns from what it sampled, and is exported as it is served."""

import asyncio

import torch
from transformers import AutoModelForCausalLM

from fakes.families import make_tiny_family
from fakes.listeners import Waiter
from fakes.training_rows import answer_row
from nat.backend.inference.engine import Engine
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.backend.path_checks import load_checked_model
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.jobs import TrainingJobs
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.training import JobStatus, TrainingConfig, TrainingGroup, TrainingJob, TrainingRollout

PROMPT = list(range(40, 60))
SECONDS = 60
UPDATES, ANSWERS = 8, 24


def played(worker, seed):
    """Answers of one token; an even one is better."""
    sequences = [
        Sequence(number, PROMPT, SamplingParams(1, seed=100 * seed + number, ignore_eos=True))
        for number in range(ANSWERS)
    ]
    request = Request(sequences, Waiter(), model="m")
    worker.submit(request)
    assert request.listener.done.wait(SECONDS)
    assert request.listener.error is None
    return sequences


def even(sequences):
    """Which tokens are even."""
    return [float(s.token_ids[0] % 2 == 0) for s in sequences]


def test_a_hybrid_learns_and_is_exported_as_it_is_served(tmp_path):
    """Even tokens were half of what it sampled, and are nearly all after a few updates; the export gives the same."""
    loaded = load_checked_model(make_tiny_family(tmp_path / "model", "qwen3_5_text"), device="cpu")
    worker = Worker(Engine(loaded, policy_version="m@0"))
    learner = Learner(loaded, Reference(loaded, lambda: loaded.model))
    saved = Checkpoints(tmp_path / "checkpoints", keep_last=1)
    jobs = TrainingJobs(worker, learner, saved, output_dir=tmp_path, save_every=5)
    config = TrainingConfig(learning_rate=3e-2, warmup_steps=0, steps_per_batch=1, max_kl=None)
    before = even(played(worker, UPDATES))
    for number in range(UPDATES):
        done = played(worker, number)
        rollouts = [
            TrainingRollout(reward=reward, rows=[answer_row(s.prompt_ids, s.token_ids, s.logprobs)])
            for s, reward in zip(done, even(done), strict=True)
        ]
        job = TrainingJob(id=f"job-{number}", groups=[TrainingGroup(id="a", rollouts=rollouts)], config=config)
        jobs.submit(job)
        jobs.find(job.id).finished.result(SECONDS)
        assert jobs.get(job.id).status is JobStatus.COMPLETED
    after = played(worker, UPDATES)
    exported = asyncio.run(jobs.export("even"))
    jobs.close()
    assert sum(before) / ANSWERS < 0.7
    assert sum(even(after)) / ANSWERS > 0.9

    model = AutoModelForCausalLM.from_pretrained(exported.path, dtype=torch.float32).eval()
    ids = [*PROMPT, *after[0].token_ids]
    with torch.no_grad():
        logprobs = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
    found = logprobs[len(PROMPT) - 1 : -1][range(1), after[0].token_ids]
    torch.testing.assert_close(found, torch.tensor(after[0].logprobs), atol=1e-4, rtol=0)
