from fakes.run_records import epoch_record
from nat.data_models.finetuning import FinetuneConfig
from nat.files import UNFINISHED
from nat.finetuning.run_log import current_run, open_run
from nat.rollout.session import current_pass, in_pass
from nat.runs.records import TrainingPhase


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
