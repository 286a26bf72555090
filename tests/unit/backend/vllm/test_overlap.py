"""Updates beside vLLM of batches that its weights of one update ago sampled."""

import pytest

from fakes.training_batches import random_groups
from fakes.training_rows import spans_of
from fakes.vllm_requests import DEADLINE, answered, ask, learner_of
from nat.backend.algorithms.registry import resolve
from nat.backend.training.weight_pair import WeightPair
from nat.wire.training import TrainingConfig


@pytest.mark.parametrize("lora", [True, False])
def test_answers_of_one_update_ago_are_trained_and_handed_over(opened, lora):
    """VLLM answers with the old weights until the hand-over; the next batch of theirs passes the alarm."""
    served = opened(lora=lora)
    engine, learner = served.engine, learner_of(served.engine)
    pair = WeightPair(engine.loaded.trainable_parameters(), version="m@0", finish_begun=engine.finish_begun)
    settings, seen = resolve(TrainingConfig(learning_rate=1e-2, max_kl=None)), []

    def batch(seed, version):
        groups = random_groups(engine.loaded, seed=seed)
        for span in spans_of(groups):
            span.policy_version = version
        return groups

    def report(_):
        request = ask(engine, seed=1)
        seen.append((answered(request)[0].logprobs, request.policy_version))

    def update(groups):
        with engine.updating():
            metrics = learner.update(groups, settings, report=report, pair=pair)
            engine.serve(f"m@{learner.step}")
        pair.version = engine.policy_version
        return metrics

    before = answered(ask(engine, seed=1))[0].logprobs
    first, stale = batch(0, "m@0"), batch(1, "m@0")
    engine.run_exclusive(lambda: update(first), beside=True).result(DEADLINE)
    assert all(version == "m@0" and logprobs == before for logprobs, version in seen)
    metrics = engine.run_exclusive(lambda: update(stale), beside=True).result(DEADLINE)
    assert metrics["logprob_diff_mean"] < 1e-4
    assert metrics["served_diff_max"] < 1e-4
    assert seen[-1][1] == "m@1"
    assert engine.policy_version == "m@2"
