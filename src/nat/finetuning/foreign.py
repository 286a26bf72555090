"""Record what a trainer does that keeps no records, such as one written by the guide.

It gets its builder and its adapter in an envelope that tells the run what `finalize` gave, what `submit` took, and how
jobs ended: an epoch goes from one `finalize` to the end of its job.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, cast

from nat.data_models.finetuning import TrainingJobStatus, TrajectoryCollection
from nat.errors import NoTrajectories, RunFailed
from nat.finetuning.epoch import PlayedEpoch, epoch_record, marked
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.run_log import EpochBegun, RunLog
from nat.finetuning.trainer import record_finished, record_submitted
from nat.finetuning.trajectories.groups import records_of
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import JobStatus

Tell = Callable[[Any, Any], Any]
"""Gets what a method returned, and its first argument."""


class _Envelope:
    """A component that tells what some of its methods gave; all else is the component's own."""

    def __init__(self, component: object, told: Mapping[str, Tell]) -> None:
        self._component = component
        self._told = told

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._component, name)
        if (tell := self._told.get(name)) is None:
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await method(*args, **kwargs)
            await tell(result, next(iter((*args, *kwargs.values())), None))
            return result

        return call


class _Epochs:
    """The epochs of a trainer as its components see them."""

    def __init__(self, trainer: Trainer, builder: TrajectoryBuilder, adapter: TrainerAdapter, run: RunLog) -> None:
        self._trainer, self._builder, self._adapter, self._run = trainer, builder, adapter, run
        self._next = run.first_epoch
        self._began = monotonic()
        self._collected: TrajectoryCollection | None = None
        self._records: list[RolloutRecord] = []
        self._training: dict[str, PlayedEpoch] = {}
        self.num_collected = 0
        self.num_submitted = 0

    async def collected(self, collection: TrajectoryCollection, _: Any) -> None:
        before = self._collected.trajectories if self._collected else []
        self._collected = collection.model_copy(update={"trajectories": [*before, *collection.trajectories]})
        self._records += self._builder.rollouts(collection.run_id) or records_of(collection)
        self.num_collected += sum(map(len, collection.trajectories))

    async def submitted(self, ref: Any, chosen: TrajectoryCollection) -> None:
        run, number, collected = self._run, self._next, self._collected or chosen
        records, self._records = self._records, []
        self._next, self._collected = number + 1, None
        self.num_submitted += sum(map(len, chosen.trajectories))
        run.append(EpochBegun(number, max(number + 1, run.total_epochs or 0)))
        known = {id(trajectory) for group in collected.trajectories for trajectory in group}
        if all(id(trajectory) in known for group in chosen.trajectories for trajectory in group):  # else copies
            records = marked(records, collected, chosen, self._trainer.run_config.curriculum_learning)
        run.rollouts_played(number, records)
        plays, compares = self._builder.trajectory_builder_config.plays, self._adapter.recipe.compares != "nothing"
        played = PlayedEpoch(number, chosen.run_id, collected, chosen, records, played=plays, compared=compares)
        record_submitted(run, played, ref)
        self._training[repr(ref)] = played

    async def reported(self, status: TrainingJobStatus, ref: Any) -> None:
        if not status.status.final or (played := self._training.pop(repr(ref), None)) is None:
            return
        job = record_finished(self._run, played, status)
        config, now = self._trainer.run_config, monotonic()
        seconds, self._began = now - self._began, now
        if played.collected.trajectories:
            record = epoch_record(
                played,
                timestamp=self._run.now(),
                curriculum=None,
                seconds={"epoch": seconds},
                job=job.metrics,
                budget=None if config is None else config.budget,
            )
            await self._run.epoch_ended(record)

    def check(self) -> None:
        """Raise if the trainer is done, and nothing was there to train on, or nothing was submitted."""
        if self.num_submitted:
            return
        trainer, builder, adapter = (type(each).__name__ for each in (self._trainer, self._builder, self._adapter))
        if not self.num_collected:
            raise NoTrajectories(
                f"{trainer} ended with nothing to train on: {builder} gave no trajectory",
                hint=f"let `start_run` of {builder} await self.run_eval(), and look at what `finalize` leaves out, "
                "such as calls of functions that are not in finetuning.target_functions",
            )
        raise RunFailed(
            f"{trainer} ended and trained nothing: of {self.num_collected} trajectories it submitted none to {adapter}",
            hint=f"let `run_epoch` await self.trainer_adapter.submit(…); see which groups {trainer} leaves out",
        )


async def run_foreign(
    trainer: Trainer, builder: TrajectoryBuilder, adapter: TrainerAdapter, run: RunLog, num_epochs: int
) -> list[TrainingJobStatus]:
    """Run the trainer's epochs, and record them.

    Raises:
        NoTrajectories: the builder gave nothing to train on.
        RunFailed: nothing was submitted.

    """
    epochs = _Epochs(trainer, builder, adapter, run)
    ended = {"status": epochs.reported, "wait_until_complete": epochs.reported}
    await trainer.bind_components(
        cast("TrajectoryBuilder", _Envelope(builder, {"finalize": epochs.collected})),
        cast("TrainerAdapter", _Envelope(adapter, {"submit": epochs.submitted, **ended})),
    )
    try:
        statuses = await trainer.run(num_epochs)
    finally:
        await trainer.bind_components(builder, adapter)
    if all(status.status is JobStatus.COMPLETED for status in statuses):
        epochs.check()
    return statuses
