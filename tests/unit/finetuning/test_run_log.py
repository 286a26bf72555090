"""The journal keeps an event before anybody hears of it, and files follow it."""

import pytest

from fakes.run_records import NOON, epoch_record, job_record, rollout_record, validation_record
from nat.data_models.finetuning import FinetuneConfig
from nat.errors import JournalError
from nat.files import UNFINISHED
from nat.finetuning.progress import RunProgress
from nat.finetuning.run_log import (
    EpochBegun,
    RolloutDone,
    RolloutsBegun,
    RolloutsPlayed,
    RunBegun,
    RunLog,
    Said,
    StateChanged,
    current_run,
    open_run,
)
from nat.rollout.session import current_pass, in_pass
from nat.runs.journal import Journal
from nat.runs.records import Phase, RunState, TrainingPhase
from nat.wire.training import JobStatus


class Shown(RunProgress):
    """Keeps which methods were called, and with what."""

    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if name.startswith("_") or name == "calls":
            return super().__getattribute__(name)
        return lambda *given: self.calls.append((name, *given))


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path, "run-1", "config: 1", created_at=NOON) as journal:
        yield journal


def test_a_display_gets_a_call_for_each_event_that_it_can_show(journal, tmp_path):
    """Several displays may watch; what is only kept, such as the rollouts themselves, is not shown."""
    displays = Shown(), Shown()
    log = RunLog(journal, displays)
    phase, epoch, validation = TrainingPhase(name="p", first_epoch=0, num_epochs=1), epoch_record(), validation_record()
    begun, ended = job_record("j"), job_record("j", JobStatus.COMPLETED)
    for event in (
        RunBegun("run-1", tmp_path, 3),
        phase,
        validation,
        EpochBegun(0, 3),
        RolloutsBegun(Phase.TRAIN, 8),
        RolloutDone("it failed"),
        RolloutsPlayed(Phase.TRAIN, 0, [rollout_record()]),
        begun,
        ended,
        epoch,
        Said("almost done"),
        StateChanged(RunState.COMPLETED, NOON, None),
    ):
        log.append(event)
    for display in displays:
        assert display.calls == [
            ("run_started", "run-1", tmp_path, 3),
            ("phase_started", phase),
            ("validation_finished", validation),
            ("epoch_started", 0, 3),
            ("rollouts_started", Phase.TRAIN, 8),
            ("rollout_done", "it failed"),
            ("training_started", 1, 8),
            ("training_finished", ended),
            ("epoch_finished", epoch),
            ("message", "almost done"),
        ]


def test_what_the_journal_cannot_keep_nobody_hears_of(journal, tmp_path):
    """A display would show an epoch that is not there after a restart."""
    heard = []
    with Journal.open(tmp_path, read_only=True) as unwritable:
        log = RunLog(unwritable, [heard.append])
        with pytest.raises(JournalError):
            log.append(epoch_record())
    assert heard == []
    assert log.state.kept == ()


def test_files_are_there_when_an_observer_hears_of_an_event(journal, tmp_path):
    """An observer may send them; the end of a run writes all of them a last time."""
    seen = {}

    def look(event):
        seen[type(event).__name__] = {path.name for path in tmp_path.rglob("*.json*")}

    log = RunLog(journal, [look])
    log.append(RolloutsPlayed(Phase.TRAIN, 0, [rollout_record()]))
    log.append(epoch_record())
    (tmp_path / "reward_history.json").unlink()
    log.append(StateChanged(RunState.RUNNING, NOON, "it ends early"))
    assert "reward_history.json" not in seen["StateChanged"]
    log.append(StateChanged(RunState.COMPLETED, NOON, None))
    assert "epoch_0000.jsonl" in seen["RolloutsPlayed"]
    assert "training_metrics.jsonl" in seen["EpochRecord"]
    assert "reward_history.json" in seen["StateChanged"]


def test_a_run_in_a_phase_sees_the_epochs_of_that_phase(tmp_path):
    """Guards and alarms compare rewards, and those of another phase may measure something else."""
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}") as run:
        for epoch in range(2):
            run.append(epoch_record(epoch))
        assert [epoch.epoch for epoch in run.epochs()] == [0, 1]
        run.append(TrainingPhase(name="play", first_epoch=2, num_epochs=3))
        for epoch in range(2, 4):
            run.append(epoch_record(epoch))
        assert [epoch.epoch for epoch in run.epochs()] == [2, 3]


def test_plug_ins_get_the_run_that_they_are_in(tmp_path):
    """Whatever passes begin inside; there is none outside."""
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}") as run, in_pass(held_out=True):
        assert current_run() is run
        assert current_pass().held_out
    assert current_run() is None


def test_a_run_goes_on_with_whole_files(tmp_path):
    """A killed process leaves files that it was writing, and files without the last record."""
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}") as run:
        run.journal.record(epoch_record(0))
        run_dir = run.journal.run_dir
    left = [run_dir / folder / f"{UNFINISHED}1-file.json" for folder in (".", "trajectories")]
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}", resume=run_dir):
        assert not any(file.exists() for file in left)
        assert len((run_dir / "training_metrics.jsonl").read_text().splitlines()) == 1
