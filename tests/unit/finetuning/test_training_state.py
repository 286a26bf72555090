"""The state of a run is a fold of its log: what a journal has kept gives it back."""

from fakes.run_records import NOON, epoch_record, job_record, rollout_record, validation_record
from nat.finetuning.run_log import RolloutsPlayed, RunLog, TrainingState
from nat.runs.journal import Journal
from nat.runs.records import Phase, TrainingPhase
from nat.wire.training import JobStatus


def test_a_phase_begins_without_what_was_known_of_the_one_before(tmp_path):
    """Its rewards may measure something else."""
    with Journal.create(tmp_path, "run-1", "config: 1", created_at=NOON) as journal:
        log = RunLog(journal)
        for event in (
            RolloutsPlayed(Phase.TRAIN, 0, [rollout_record(policy_versions={"m@0": 1})]),
            job_record("job-0", JobStatus.COMPLETED, policy_version="m@1"),
            epoch_record(0, curriculum_state={"current_percentile": 0.3}),
            validation_record(1, {"x": 1.0}),
        ):
            log.append(event)
        assert log.state.versions.staleness("m@0") == 1
        assert [epoch.epoch for epoch in log.state.kept] == [0]
        assert log.state.curriculum == {"current_percentile": 0.3}
        log.append(TrainingPhase(name="second", first_epoch=1, num_epochs=1))
        assert log.state == TrainingState(log.journal.phases()[0])
