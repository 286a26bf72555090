"""The page about a run."""

import json

import pytest

from fakes.run_records import epoch_record
from fakes.runs_on_disk import CONFIG, make_run
from nat.data_models.rollout_failure import FailureCount
from nat.reports.run_page import run_page, run_report
from nat.runs.journal import Journal, reading
from nat.runs.liveness import marked_alive
from nat.runs.records import RunState, RunSummary

PHASED = CONFIG | {
    "finetuning": {
        "phases": [{"name": "file", "num_epochs": 1, "trainer_adapter": "weights"}, {"name": "play", "num_epochs": 2}]
    }
}


def page_of(folder):
    with reading(folder) as journal:
        return run_page(run_report(journal))


def test_the_page_begins_with_the_verdict(tmp_path):
    """Then come what was trained, the curves, the best weights with their luck, the time, and some epochs."""
    lines = page_of(make_run(tmp_path, "run-1")).splitlines()
    assert lines[2].startswith("Improved: 0.200 → 0.800 on the same 10 held-out examples")
    text = "\n".join(lines)
    assert "Reward    0.300 → 0.500 in training" in text
    assert "Held-out  0.200 → 0.800" in text
    assert "held-out score 0.800 after epoch 3" in text
    assert "the highest of 4 validations on the same examples, so probably too high" in text
    assert "Left out  24 x its group has no difference in reward" in text
    assert "Time      27 s: rollouts 67%, training 33%" in text
    assert lines[-1].split()[:3] == ["3", "0.500", "0.800"]


def test_messages_that_the_model_has_not_seen_are_named(tmp_path):
    """By the backend's metrics: a template may leave out a role without a word."""
    folder = make_run(tmp_path, "run-1")
    assert "Unseen" not in page_of(folder)
    lost = {"train/left_out_tool_message": 1.0, "train/left_out_system_message": 1.0}
    with Journal.open(folder) as journal:
        journal.record(epoch_record(epoch=3, metrics=lost))
    assert "Unseen    left out by the chat template: system message, tool message" in page_of(folder)


@pytest.mark.parametrize("state", list(RunState))
def test_a_run_in_any_state_has_a_page(tmp_path, state):
    """A failed run says why; a running one shows what it has so far."""
    folder = make_run(tmp_path, "run-1", solved=(2,), state=state, message="the backend is dead\n  → start it")
    text = page_of(folder)
    assert "No verdict: the held-out examples were not played both before the first and after the last epoch." in text
    assert "the backend is dead → start it" in text
    assert "Epochs    0 of 3" in text


def test_a_run_that_ended_early_shows_the_verdict_of_its_last_validation(tmp_path):
    """The verdict names the weights that it is about, if the last ones were not judged."""
    folder = make_run(tmp_path, "run-1", state=RunState.FAILED)
    with Journal.open(folder) as journal:
        summary = RunSummary(run_id="run-1", epochs=3, judged_epoch=1, seconds=1.0, tokens_trained=0)
        journal.record(summary)
    assert "Verdict after epoch 1: No improvement shown: 0.200 → 0.600" in page_of(folder)


def test_phases_have_their_verdicts(tmp_path):
    """Each with its epochs; rewards are those of rollouts, and epochs on a file have their loss."""
    text = page_of(make_run(tmp_path, "run-1", phases=["file", "play", "play"], config=PHASED))
    assert "File      loss 0.250 → 0.250 on its rows" in text
    assert "Reward    0.400 → 0.500 in training" in text
    assert "Phases    file, epoch 1: No improvement shown: 0.200 → 0.600" in text
    assert "\n          play, epochs 2 to 3: " in text
    assert "0.600 → 0.800 on the same 10 held-out examples" in text
    assert "Epochs    3 of 3" in text
    rows = [line.split() for line in text.splitlines()[-3:]]
    assert [(row[0], row[-1]) for row in rows] == [("1", "file"), ("2", "play"), ("3", "play")]
    assert "0.300" not in rows[0], "the reward of a file measures nothing"
    assert "models/small" in text


def test_each_second_of_a_run_is_counted_once(tmp_path):
    """Rollouts beside an update are no second of their own, and the shares are of the time that the run's end says."""
    folder = make_run(tmp_path, "run-1", solved=(2, 6))
    ahead = {"time/rollout": 50.0, "time/waiting_for_rollouts": 20.0, "time/train": 60.0, "time/overlapped": 30.0}
    with Journal.open(folder) as journal:
        journal.record(epoch_record(0, seconds=80.0, metrics=ahead))
        assert "Time      1 min 20 s: training 38%, both at once 38%, rollouts 25%" in page_of(folder)
        journal.record(RunSummary(run_id="run-1", epochs=1, seconds=100.0, tokens_trained=0))
    shares = "training 30%, both at once 30%, rollouts 20%, loading, saving and the rest 20%"
    assert f"1 min 40 s: {shares}" in page_of(folder)


def test_a_killed_run_says_so(tmp_path):
    """Its process has ended without a word."""
    folder = make_run(tmp_path, "run-1", state=RunState.RUNNING)
    with marked_alive(folder):
        assert "State     running\n" in page_of(folder)
    assert "interrupted: its process has ended without recording why" in page_of(folder)


def test_a_long_run_shows_some_epochs(tmp_path):
    """The table has the first, the last and epochs between them; failures are counted by cause."""
    folder = make_run(tmp_path, "run-1")
    failures = [FailureCount(cause="the workflow raised an error", count=2, error="KeyError: 'city'")]
    with Journal.open(folder) as journal:
        for epoch in range(100):
            journal.record(epoch_record(epoch, failures=failures))
    text = page_of(folder)
    assert "200 x the workflow raised an error: KeyError: 'city'" in text
    table = text.splitlines()[-13:]
    assert table[0].startswith("before ")
    assert [line.split()[0] for line in table[1:]] == [str(epoch) for epoch in range(1, 101, 9)]


def test_the_record_is_json(tmp_path):
    """Programs get the same facts, with the records of all epochs and validations."""
    with reading(make_run(tmp_path, "run-1")) as journal:
        record = json.loads(run_report(journal).model_dump_json())
    assert record["run"]["state"] == "completed"
    assert len(record["epochs"]) == 3
    assert record["best"]["epoch"] == 3
    assert record["seconds"] == {"rollouts": 18.0, "training": 9.0}
