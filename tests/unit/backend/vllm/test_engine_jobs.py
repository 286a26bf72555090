"""Training jobs over the vLLM engine: states, versions and failures as over the embedded one."""

import pytest

from fakes.training_batches import random_groups
from fakes.training_rows import spans_of
from fakes.vllm_requests import DEADLINE, answered, ask, learner_of
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.jobs import TrainingJobs
from nat.wire.training import TrainingConfig, TrainingJob


@pytest.fixture
def trained(opened, tmp_path):
    """Send jobs to an engine, one after another; gives the final state of each."""
    served = opened()
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder, keep_last=2)
    jobs = TrainingJobs(served.engine, learner_of(served.engine), checkpoints, output_dir=tmp_path)

    def send(name, *, stale=False):
        groups, config = random_groups(served.loaded), TrainingConfig(learning_rate=1e-2)
        for span in spans_of(groups) if stale else ():
            span.policy_version, span.logprobs = "m@0", [each - 1 for each in span.logprobs]
        jobs.submit(TrainingJob(id=name, groups=groups, config=config, stale=stale))
        jobs.find(name).finished.result(DEADLINE)
        return jobs.get(name)

    yield served, send
    jobs.close()


@pytest.mark.parametrize("stale", [False, True])
def test_each_job_has_its_version(trained, stale):
    """Also of answers of one update ago, whose log probabilities are not compared with the current weights."""
    served, send = trained
    for step in (1, 2):
        state = send(f"job-{step}", stale=stale and step == 2)
        assert (state.status, state.failure) == ("completed", None)
        assert state.policy_version == f"m@{step}"
        assert state.metrics.get("logprob_diff_mean", 0.0) < 1e-4
        assert state.metrics["served_diff_max"] < 1e-4
        request = ask(served.engine)
        assert answered(request)[0].finish_reason == "length"
        assert request.policy_version == f"m@{step}"


def test_a_failed_hand_over_keeps_its_remedy(trained):
    """The job's failure names what vLLM answered, and what to do."""
    served, send = trained
    served.vllm.failing.add("/v1/load_lora_adapter")
    state = send("job")
    assert state.status == "failed"
    assert "scripted failure of /v1/load_lora_adapter" in state.failure.message
    assert "--enable-lora" in state.failure.hint
