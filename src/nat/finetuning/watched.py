"""Record what a trainer does that keeps no records, such as one written by the guide.

The run watches the calls between its components: what `finalize` gave, what `submit` took, how jobs ended, and what the
trainer logged. Journal, metrics and summary then have its epochs, too, and a run that trained nothing fails.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.finetuning import (
    TrainingJobRef,
    TrainingJobStatus,
    Trajectory,
    TrajectoryCollection,
)
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.score import is_finite
from nat.errors import NoTrajectories, RunFailed
from nat.finetuning.epoch import PlayedEpoch, epoch_record, marked
from nat.finetuning.events import EpochBegun, RolloutsBegun
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.metrics import LOGGED
from nat.finetuning.recorder import record_epoch, record_finished, record_rollouts, record_submitted
from nat.finetuning.run_context import RunContext, Stopwatch
from nat.finetuning.trajectories.groups import records_of
from nat.rollout.session import current_pass
from nat.runs.records import JobRecord, Phase, epoch_number
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import JobStatus

_WAYS = (
    "look at what `finalize` leaves out, such as calls of functions that are not in finetuning.target_functions, or "
    "answers without log probabilities"
)

Method = Callable[..., Any]
Components = tuple[Trainer, TrajectoryBuilder, TrainerAdapter]


@dataclass
class WatchedEpoch:
    """One epoch of the trainer, as far as it was seen."""

    number: int
    groups: list[list[Trajectory]] = field(default_factory=list)
    rollouts: list[RolloutRecord] = field(default_factory=list)
    watch: Stopwatch = field(default_factory=Stopwatch)
    logged: dict[str, float] = field(default_factory=dict)
    played: PlayedEpoch | None = None
    """Set when the trainer submits."""
    job: JobRecord | None = None
    """Set when its job ends."""

    @property
    def trained(self) -> bool:
        return self.job is not None and self.job.status is JobStatus.COMPLETED


class Watch:
    """The epochs of a trainer; the last one is open until the next begins."""

    def __init__(self, components: Components, run: RunContext, num_epochs: int) -> None:
        self._trainer, self._builder, self._adapter = components
        self._run, self._num_epochs = run, num_epochs
        self._open: WatchedEpoch | None = None
        self._next = run.first_epoch
        self._jobs: dict[str, tuple[JobRecord, WatchedEpoch]] = {}
        self._seen: Counter[str] = Counter()

    def epoch_begins(self, number: int) -> None:
        """The trainer enters `run_epoch`; a number that was there already is not used again."""
        number = max(number, self._next)
        self._open, self._next = WatchedEpoch(number), number + 1
        run = self._run
        run.append(EpochBegun(number, run.total_epochs or self._num_epochs))
        run.append(RolloutsBegun(Phase.TRAIN, run.num_rollouts(Phase.TRAIN)))

    async def close_epoch(self, *, if_trained: bool = False) -> None:
        """Record the open epoch, if it has trajectories."""
        epoch, self._open = self._open, None
        if epoch is None or (if_trained and not epoch.trained):
            return
        if not epoch.groups:
            self._run.warn(f"Epoch {epoch_number(epoch.number)}: {self._nothing}")
            return
        played = epoch.played or self._chosen(epoch, TrajectoryCollection(trajectories=[], run_id=self._run.run_id))
        record = epoch_record(
            played,
            timestamp=self._run.now(),
            curriculum=None,
            seconds=epoch.watch.total,
            stages={},
            job={} if epoch.job is None else epoch.job.metrics,
            budget=None if (config := self._trainer.run_config) is None else config.budget,
        )
        logged = {f"{LOGGED}{name}": value for name, value in epoch.logged.items()}
        await record_epoch(self._run, record.model_copy(update={"metrics": record.metrics | logged}))

    async def played(self, output: EvaluationRunOutput) -> None:
        """A pass of the builder over the dataset is done."""
        if current_pass().held_out:
            return
        steps = (step for item in output.eval_input.eval_input_items for step in item.trajectory)
        self._seen["rollouts"] += len(output.eval_input.eval_input_items)
        self._seen["failed"] += len(output.failures)
        self._seen["calls"] += sum(step.event_type is IntermediateStepType.LLM_END for step in steps)

    async def collected(self, collection: TrajectoryCollection, run_id: str, *_: Any) -> None:
        """The builder has given trajectories."""
        if self._open is not None and self._open.played is not None:
            await self.close_epoch()
        epoch = self._epoch()
        epoch.groups += collection.trajectories
        epoch.rollouts += self._builder.rollouts(run_id) or records_of(collection)
        self._seen["trajectories"] += sum(map(len, collection.trajectories))

    async def submitted(self, ref: TrainingJobRef, collection: TrajectoryCollection) -> None:
        """The adapter has taken trajectories."""
        epoch = self._epoch()
        epoch.played = self._chosen(epoch, collection)
        self._seen["submitted"] += sum(map(len, collection.trajectories))
        self._jobs[repr(ref)] = record_submitted(self._run, epoch.played, ref), epoch

    async def reported(self, status: TrainingJobStatus, ref: TrainingJobRef, *_: Any) -> None:
        """The adapter has told a job's status."""
        if not status.status.final or (found := self._jobs.pop(repr(ref), None)) is None:
            return
        job, epoch = found
        assert epoch.played is not None, "set before the job was submitted"
        epoch.job = record_finished(self._run, job, epoch.played, status)

    def logged(self, metrics: Any) -> None:
        """The trainer has logged the metrics of its epoch."""
        if self._open is not None and isinstance(metrics, dict):
            self._open.logged |= {str(name): float(value) for name, value in metrics.items() if is_finite(value)}

    def check(self) -> None:
        """Raise if the trainer is done, and nothing was there to train on, or nothing was submitted."""
        if self._seen["submitted"]:
            return
        trainer, adapter = type(self._trainer).__name__, type(self._adapter).__name__
        if not self._seen["trajectories"]:
            raise NoTrajectories(f"{trainer} ended with nothing to train on: {self._nothing}", hint=self._hint)
        raise RunFailed(
            f"{trainer} ended and trained nothing: of {self._seen['trajectories']} trajectories it submitted none to "
            f"{adapter}",
            hint=f"let `run_epoch` await self.trainer_adapter.submit(…); see which groups {trainer} leaves out",
        )

    @property
    def _nothing(self) -> str:
        """What the builder has played so far, and that it made nothing of it."""
        seen, name = self._seen, type(self._builder).__name__
        played = f"{seen['rollouts']} rollouts, of which {seen['failed']} failed, with {seen['calls']} LLM calls"
        return f"{name} gave no trajectory ({played if seen['rollouts'] else 'its run_eval was not called'})"

    @property
    def _hint(self) -> str:
        seen, name = self._seen, type(self._builder).__name__
        if not seen["rollouts"]:
            return f"let `start_run` of {name} await self.run_eval(), and check that the dataset has rows"
        if seen["failed"] == seen["rollouts"]:
            return "all rollouts failed; the run's failures.txt or the log above has the first error"
        if not seen["calls"]:
            return "no LLM call was seen: the workflow must take its client from builder.get_llm"
        return f"{_WAYS} ({name})"

    def _epoch(self) -> WatchedEpoch:
        """The open epoch; a trainer that does not use `run_epoch` begins one here."""
        if self._open is None:
            self.epoch_begins(self._next)
        assert self._open is not None, "begun above"
        return self._open

    def _chosen(self, epoch: WatchedEpoch, chosen: TrajectoryCollection) -> PlayedEpoch:
        """The epoch with what was submitted of it, as far as that can be told: a trainer may submit copies."""
        collected = TrajectoryCollection(trajectories=epoch.groups, run_id=chosen.run_id)
        known = {id(trajectory) for group in epoch.groups for trajectory in group}
        records = epoch.rollouts
        if all(id(trajectory) in known for group in chosen.trajectories for trajectory in group):
            records = marked(records, collected, chosen, self._trainer.run_config.curriculum_learning)
        record_rollouts(self._run, epoch.number, records)
        return PlayedEpoch(
            epoch.number,
            chosen.run_id,
            collected,
            chosen,
            records,
            played=self._builder.trajectory_builder_config.plays,
            compared=self._adapter.recipe.compares != "nothing",
        )


async def run_watched(
    trainer: Trainer, builder: TrajectoryBuilder, adapter: TrainerAdapter, run: RunContext, num_epochs: int
) -> list[TrainingJobStatus]:
    """Run the trainer's epochs, and record them.

    Raises:
        NoTrajectories: the builder gave nothing to train on.
        RunFailed: nothing was submitted.

    """
    watch = Watch((trainer, builder, adapter), run, num_epochs)
    with _telling(watch, trainer, builder, adapter):
        try:
            statuses = await trainer.run(num_epochs)
        except BaseException:
            await watch.close_epoch(if_trained=True)
            raise
        await watch.close_epoch()
    if all(status.status is JobStatus.COMPLETED for status in statuses):
        watch.check()
    return statuses


@contextmanager
def _telling(watch: Watch, trainer: Trainer, builder: TrajectoryBuilder, adapter: TrainerAdapter) -> Iterator[None]:
    """Let calls of the components tell the watch; not by proxies, so that a plug-in finds its own objects."""

    def entering(run_epoch: Method) -> Method:
        async def call(epoch: int, *args: Any, **kwargs: Any) -> Any:
            await watch.close_epoch()
            watch.epoch_begins(epoch)
            return await run_epoch(epoch, *args, **kwargs)

        return call

    def logging(log_progress: Method) -> Method:
        def call(epoch: int, metrics: Any, *args: Any, **kwargs: Any) -> None:
            watch.logged(metrics)
            log_progress(epoch, metrics, *args, **kwargs)

        return call

    def after(tell: Method) -> Callable[[Method], Method]:
        """`tell` gets the result and the arguments in the order of the parameters."""

        def make(method: Method) -> Method:
            async def call(*args: Any, **kwargs: Any) -> Any:
                result = await method(*args, **kwargs)
                given = signature(method).bind(*args, **kwargs)
                await tell(result, *given.args, *given.kwargs.values())
                return result

            return call

        return make

    replaced: list[tuple[Any, str, Callable[[Method], Method]]] = [
        (trainer, "run_epoch", entering),
        (trainer, "log_progress", logging),
        (builder, "run_eval", after(watch.played)),
        (builder, "finalize", after(watch.collected)),
        (adapter, "submit", after(watch.submitted)),
        (adapter, "status", after(watch.reported)),
        (adapter, "wait_until_complete", after(watch.reported)),
    ]
    with ExitStack() as stack:
        for owner, name, make in replaced:
            setattr(owner, name, make(getattr(owner, name)))
            stack.callback(delattr, owner, name)
        yield
