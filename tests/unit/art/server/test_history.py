import json
from datetime import UTC, datetime

import pytest
from hypothesis import strategies as st

from nat.art.server import history
from nat.art.wire import ArtTrajectory, ArtTrajectoryGroup

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
values = st.floats(min_value=-1e6, max_value=1e6)


def group(*rewards, exceptions=0, **metrics):
    trajectories = [ArtTrajectory(reward=reward, metrics=metrics) for reward in rewards]
    return ArtTrajectoryGroup(trajectories=trajectories, exceptions=[{"type": "ValueError"}] * exceptions)


def rows(*pairs):
    return [{"step": step, "recorded_at": "now", "val/reward": value} for step, value in pairs]


def test_averages_are_over_rollouts_and_failures_are_counted_not_scored():
    """A rollout that raised has no reward and counts in the share of failures."""
    found = history.averages([group(1.0, 0.0, won=True), group(0.5, exceptions=1, won=False)])
    assert found == {
        "reward": 0.5,
        "won": pytest.approx(2 / 3),
        "reward_std_dev": 0.25,
        "exception_rate": 0.25,
    }


def test_nothing_has_no_average():
    """A batch without rollouts has no average."""
    assert history.averages([ArtTrajectoryGroup()]) == {}


def test_each_call_is_recorded_by_split_and_step(tmp_path):
    """Each call adds a row to the history and its groups to the file of its step."""
    for reward in (1.0, 0.0):
        history.record(tmp_path, [group(reward)], split="val", step=3, recorded_at=NOON)
    lines = (tmp_path / "trajectories/val/0003.jsonl").read_text().splitlines()
    assert [json.loads(line)["trajectories"][0]["reward"] for line in lines] == [1.0, 0.0]
    kept = history.read(tmp_path)
    assert [row["val/reward"] for row in kept] == [1.0, 0.0]
    assert kept[0]["recorded_at"] == "2026-01-01T12:00:00+00:00"
    assert history.metrics_of(kept, 3)["val/reward"] == 0.5
    assert history.metrics_of(kept, 4) == {}


def test_a_truncated_row_damages_no_other(tmp_path):
    """After a crash in the middle of a write, the next row starts on its own line."""
    history.record(tmp_path, [group(1.0)], split="val", step=0, recorded_at=NOON)
    with (tmp_path / history.HISTORY).open("a") as file:
        file.write('{"step": 1, "val/rew')
    history.record(tmp_path, [group(0.5)], split="val", step=2, recorded_at=NOON)
    assert [row["step"] for row in history.read(tmp_path)] == [0, 2]


@pytest.mark.parametrize("split", ["", "..", "a/b", "/etc", "a" * 65])
def test_a_split_cannot_lead_out_of_the_folder(tmp_path, split):
    """A split becomes a folder's name, so only plain names are accepted."""
    with pytest.raises(ValueError, match="cannot name a folder"):
        history.record(tmp_path, [group(1.0)], split=split, step=0, recorded_at=NOON)
    assert list(tmp_path.iterdir()) == []
