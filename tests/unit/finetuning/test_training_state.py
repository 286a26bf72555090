"""The state of a run is a fold of its log: what a journal has kept gives it back."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from fakes.run_records import NOON, epoch_record, job_record, rollout_record, validation_record
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.events import EpochBegun, Event, RolloutDone, RolloutsPlayed, Said
from nat.finetuning.run_log import RunLog
from nat.finetuning.training_state import TrainingState, state_of
from nat.runs.journal import Journal
from nat.runs.records import Phase, TrainingPhase
from nat.wire.training import JobStatus

GUARDS = GuardsConfig(collapse_epochs=1, epochs_without_signal=1)
EPOCHS = st.lists(
    st.fixed_dictionaries(
        {
            "validated": st.booleans(),
            "phase": st.booleans(),
            "job": st.sampled_from([None, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.RUNNING]),
            "version": st.sampled_from([None, "m@1", "m@2"]),
            "finished": st.booleans(),
            "reward": st.sampled_from([0.0, 0.25, 1.0]),
            "curriculum": st.none() | st.just({"current_percentile": 0.5}),
            "untrainable": st.booleans(),
        }
    ),
    max_size=30,
)


def events(epochs: list[dict]) -> Iterator[Event]:
    """Those of a run, in their order; each epoch may lack any of them."""
    for number, epoch in enumerate(epochs):
        if epoch["validated"]:
            yield validation_record(number, {"x": epoch["reward"], "y": None})
        if epoch["phase"]:
            yield TrainingPhase(name=f"p{number}", first_epoch=number, num_epochs=9)
        yield EpochBegun(number, len(epochs))
        untrainable = {"untrainable_calls": {"agent": {"top_p=0.9": 1}}} if epoch["untrainable"] else {}
        yield RolloutDone(None)
        yield RolloutsPlayed(
            Phase.TRAIN, number, [rollout_record(policy_versions={f"m@{number % 3}": 1}, **untrainable)]
        )
        if epoch["job"] is not None:
            yield job_record(f"job-{number}", epoch=number)
            yield job_record(f"job-{number}", epoch["job"], epoch=number, policy_version=epoch["version"])
        if epoch["finished"]:
            yield epoch_record(number, epoch["reward"], curriculum_state=epoch["curriculum"])
        yield Said("one more epoch")


@given(EPOCHS)
def test_the_journal_gives_the_state_after_every_event(epochs):
    """Wherever a run is killed, what it knew of its epochs can be read again."""
    with (
        TemporaryDirectory() as folder,
        Journal.create(Path(folder), "run-1", "config: 1", created_at=NOON) as journal,
    ):
        log = RunLog(journal, guards=GUARDS)
        assert state_of(journal, GUARDS) == log.state == TrainingState()
        for event in events(epochs):
            log.append(event)
            assert state_of(journal, GUARDS) == log.state


def test_a_phase_begins_without_what_was_known_of_the_one_before(tmp_path):
    """Its rewards may measure something else; the score with which it begins is its own."""
    with Journal.create(tmp_path, "run-1", "config: 1", created_at=NOON) as journal:
        log = RunLog(journal)
        for event in (
            RolloutsPlayed(Phase.TRAIN, 0, [rollout_record(policy_versions={"m@0": 1})]),
            job_record("job-0", JobStatus.COMPLETED, policy_version="m@1"),
            epoch_record(0, curriculum_state={"current_percentile": 0.3}),
            validation_record(0, {"x": 0.0}),
            validation_record(1, {"x": 1.0}),
        ):
            log.append(event)
        assert log.state.versions.staleness("m@0") == 1
        assert [epoch.epoch for epoch in log.state.kept] == [0]
        assert log.state.curriculum == {"current_percentile": 0.3}
        log.append(TrainingPhase(name="second", first_epoch=1, num_epochs=1))
        assert log.state == TrainingState(held_out={1: 1.0})
