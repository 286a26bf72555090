from dataclasses import replace

from fakes.run_records import epoch_record
from nat.data_models.finetuning import FinetuneConfig
from nat.files import UNFINISHED
from nat.finetuning.run_context import open_run
from nat.runs.records import TrainingPhase


def test_a_run_in_a_phase_sees_the_epochs_of_that_phase(tmp_path):
    """Guards and alarms compare rewards, and those of another phase may measure something else."""
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}") as run:
        phase = TrainingPhase(name="play", first_epoch=2, num_epochs=3)
        played = replace(run, phase=phase, total_epochs=5)
        for epoch in range(4):
            run.journal.record_epoch(epoch_record(epoch))
        assert [epoch.epoch for epoch in run.epochs()] == [0, 1, 2, 3]
        assert [epoch.epoch for epoch in played.epochs()] == [2, 3]


def test_a_phase_is_recorded_as_it_begins(tmp_path, caplog):
    """Before its first epoch is whole; a run without phases records none."""
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}") as run, caplog.at_level("INFO"):
        run.begin_phase()
        assert run.journal.phases() == []
        phase = TrainingPhase(name="play", first_epoch=10, num_epochs=1)
        replace(run, phase=phase).begin_phase()
        assert run.journal.phases() == [phase]
    assert "Phase play: epoch 11" in caplog.text


def test_a_run_goes_on_with_whole_files(tmp_path):
    """A killed process leaves files that it was writing, and files without the last record."""
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}") as run:
        run.journal.record_epoch(epoch_record(0))
        run_dir = run.journal.run_dir
    left = [run_dir / folder / f"{UNFINISHED}1-file.json" for folder in (".", "trajectories")]
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}", resume=run_dir):
        assert not any(file.exists() for file in left)
        assert len((run_dir / "training_metrics.jsonl").read_text().splitlines()) == 1
