from pathlib import Path

from fakes.made_spans import CollectedTraces, rollout
from nat.finetuning.run_log import RolloutsPlayed, RunBegun
from nat.finetuning.workflow_sessions import RolloutTraces
from nat.runs.records import Phase
from nat.runs.rollouts import LeftOutCause, RolloutRecord


def observed(*records, phase=Phase.TRAIN):
    """The spans of rollouts whose records the run has appended to its log."""
    traces = CollectedTraces()
    observe = RolloutTraces(traces)
    observe(RunBegun("run-1", Path(), 2))
    for record in records:
        traces.ended(rollout(record.example_id, seed=record.seed, generation=7), "q", is_judged=True)
    observe(RolloutsPlayed(phase, 3, records))
    return [span.attributes for span in traces.spans]


def test_a_training_rollout_has_its_place_in_the_run():
    """Run, epoch, example, generation in the epoch, weights and reward, under names that back ends can filter."""
    record = RolloutRecord(example_id="a", generation=1, seed=5, reward=0.5, policy_versions={"v2": 3})
    (found,) = observed(record)
    assert {name: value for name, value in found.items() if name.startswith("nat.finetune.")} == {
        "nat.finetune.run_id": "run-1",
        "nat.finetune.purpose": "train",
        "nat.finetune.epoch": 3,
        "nat.finetune.example_id": "a",
        "nat.finetune.generation": 1,
        "nat.finetune.seed": 5,
        "nat.finetune.weight_version": "v2",
        "nat.finetune.reward": 0.5,
    }
    assert found["nat.evaluation.reward"] == 0.5


def test_a_rollout_without_a_reward_says_why():
    """No number stands for a failure."""
    record = RolloutRecord(example_id="a", generation=0, seed=5, left_out=LeftOutCause.TIMED_OUT, error="late")
    (found,) = observed(record, phase=Phase.VALIDATION)
    assert found["nat.finetune.left_out"] == LeftOutCause.TIMED_OUT.value
    assert found["nat.finetune.purpose"] == "validation"
    assert not [name for name in found if "reward" in name or "evaluation" in name]
