"""Versions become older with each update, and rollouts beyond the bound are left out with their cause."""

import pytest

from fakes.run_records import rollout_record
from fakes.training_rows import row_of
from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.finetuning.staleness import PolicyVersions, without_stale
from nat.runs.rollouts import LeftOutCause


@pytest.fixture
def versions():
    """The versions of a run after two updates."""
    first = PolicyVersions().beginning_with([rollout_record(policy_versions={"m@0": 3})])
    return first.updated("m@1").updated("m@2")


def row(*versions):
    return row_of([0, 0] * len(versions), [None, -1.0] * len(versions), versions=versions)


def test_each_update_makes_the_versions_before_it_one_older(versions):
    """Staleness counts updates, not steps: `name@step` may rise by any number."""
    versions = versions.updated("m@7")
    assert [versions.staleness(name) for name in ("m@7", "m@2", "m@1", "m@0", "other@0")] == [0, 1, 2, 3, None]


def test_metrics_are_of_answers_rows_and_groups(versions):
    """Each answer counts once; a row is stale if any answer is; a group counts once however many it lost."""
    records = [
        rollout_record("a", policy_versions={"m@1": 1, "m@2": 1}, rows=[row("m@1", "m@2")]),
        rollout_record("b", policy_versions={"m@2": 2}, rows=[row("m@2"), row("m@2")]),
        rollout_record("c", policy_versions={"m@0": 9}, rows=[row("m@0")], left_out=LeftOutCause.TOO_STALE),
    ]
    records.append(records[-1].model_copy(update={"generation": 1}))
    assert versions.metrics(records) == {
        "drift/staleness": 0.25,
        "drift/staleness_max": 1.0,
        "drift/stale_rows": pytest.approx(1 / 3),
        "drift/dropped_groups": 1.0,
    }
    assert versions.metrics([rollout_record("d", rows=[row("who@1")], policy_versions={"who@1": 1})]) == {}


def test_a_rollout_with_an_answer_beyond_the_bound_is_left_out(versions):
    """One answer that is too old drops the rollout, and an empty group goes with it; unknown versions stay."""
    seen = {("a", 0): "m@1", ("a", 1): "m@0", ("b", 0): "m@0", ("c", 0): "unknown"}
    records = [rollout_record(*key, policy_versions={"m@2": 1, version: 1}) for key, version in seen.items()]
    groups = [
        [
            Trajectory(episode=[], reward=1.0, metadata={"id": key[0], "generation": key[1]})
            for key in seen
            if key[0] == name
        ]
        for name in "abc"
    ]
    collected = TrajectoryCollection(trajectories=groups, run_id="r")
    marked, kept = without_stale(records, collected, versions, max_staleness=1)
    assert [record.left_out for record in marked] == [None, LeftOutCause.TOO_STALE, LeftOutCause.TOO_STALE, None]
    assert kept.trajectories == [[groups[0][0]], groups[2]]
