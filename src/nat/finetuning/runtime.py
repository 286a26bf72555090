"""One finetuning run, from its configuration to its summary."""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.finetuning import (
    FinetuneConfig,
    FinetuneRunConfig,
    ServedModel,
    TrainingJobStatus,
    TrainingStatusEnum,
)
from nat.errors import BackendError, ConfigError, RunFailed
from nat.files import shown
from nat.finetuning import guards
from nat.finetuning.best_model import LAST_MODEL, export_best
from nat.finetuning.diagnosis.gather import findings_of
from nat.finetuning.ending import SECONDS_AFTER_INTERRUPT, end_after, judge_after, summary_of
from nat.finetuning.foreign import run_foreign
from nat.finetuning.health import check_health, dead_server
from nat.finetuning.identity import check_resumed, identity_of
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import SendsAgain, TakesOver, TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.plan import Plan, resolve
from nat.finetuning.plan_rules import found, recipe_refusals, recipe_warnings
from nat.finetuning.run_log import Observer, Plotter, RunBegun, RunLog, StepBegun, open_run, utc_now
from nat.finetuning.stage import Stage
from nat.finetuning.summary import path_in_run
from nat.finetuning.trackers import SECONDS_AT_END, Trackers
from nat.finetuning.trainer import EpochTrainer, statuses_of
from nat.finetuning.validation import no_verdict, validate
from nat.finetuning.verdict import Comparison
from nat.finetuning.workflow_sessions import RolloutTraces, open_sessions
from nat.rollout.server_watch import watched_servers
from nat.rollout.traces import Traces, opened_traces
from nat.runs.find import newest_if_unfinished
from nat.runs.plot import draw_run
from nat.runs.preemption import Preempted, Preemption, resume_command
from nat.runs.records import Phase, RunState, RunSummary, TrainingPhase
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

LOADING = "loading the model and building the workflow"
_QUESTIONS = 20
"""Among which one is chosen for the command that plays the trained model."""
_SECONDS_TO_CLOSE = 2.0
"""Of the grace, for what comes after the trackers."""


@dataclass(frozen=True)
class RunResult:
    """A run that completed."""

    run_id: str
    run_dir: Path
    statuses: list[TrainingJobStatus]
    summary: RunSummary
    comparison: Comparison | None
    """Held-out scores before and after; None without a validation dataset."""
    trained_llms: tuple[str, ...]
    """Keys of the trained LLMs; none if the adapter's configuration names none."""
    served_model: ServedModel | None = None
    """The trained model, if its server keeps it."""
    no_verdict: str | None = None
    """Why the held-out examples were not played with the trained model."""
    question: str = ""
    """One that the run has played, of some the shortest."""


@dataclass(frozen=True)
class RunComponents:
    """The components of the run or of a phase, and the builder that closes them."""

    builder: WorkflowBuilder
    trajectories: TrajectoryBuilder
    trainer: Trainer
    adapter: TrainerAdapter

    async def begin(self, finetuning: FinetuneConfig, *, after: "RunComponents | None") -> None:
        """Initialize the components; with another adapter `after` it, go on with the weights that it has trained.

        Without `after`, the backend has begun this stage already.
        """
        if finetuning.phase is not None:  # a trainer of several phases is bound to one of them
            await self.trainer.bind_components(self.trajectories, self.adapter)
        await self.trainer.initialize(finetuning)
        await check_health(self.adapter)
        await self.builder.probe_llms()
        if after is not None and after.adapter is not self.adapter and isinstance(self.adapter, TakesOver):
            await self.adapter.take_over(after.adapter)


async def run_finetuning(
    given: FinetuneRunConfig,
    *,
    resume: Path | None = None,
    accept_changes: bool = False,
    progress: Observer | None = None,
    now: Callable[[], datetime] = utc_now,
    plotter: Plotter = draw_run,
    preemption: Preemption | None = None,
) -> RunResult:
    """Train the model inside a workflow, and report whether it improved.

    A run that fails, is cancelled or killed leaves a whole journal. With `resume`, its folder, it goes on: finished
    epochs, rollouts, scores and updates stay. It must be the same run, unless you `accept_changes`. If `preemption` has
    begun when it is cancelled, it does nothing that could be done later.

    Raises:
        ConfigError: the configuration is wrong or incomplete.
        DatasetError: a dataset cannot be read.
        BackendError: the backend is unreachable, or a training job failed.
        RunFailed: the run cannot learn.

    """
    plan, preemption = await resolve(given), preemption or Preemption()
    identity = await asyncio.to_thread(identity_of, plan)
    check_resumed(resume, identity, accept_changes=accept_changes)
    trackers = Trackers(plan.finetuning.trackers)
    beside = newest_if_unfinished(plan.finetuning.output_dir) if resume is None else None
    async with opened_traces(plan.config.general.telemetry.tracing, workflow=plan.config.workflow.type) as traces:
        observers = (RolloutTraces(traces), *(() if progress is None else (progress,)), trackers)
        with open_run(
            plan.finetuning,
            plan.config_text,
            resume=resume,
            planned={stage.finetuning.phase: plan.num_rollouts(stage) for stage in plan.stages},
            observers=observers,
            now=now,
            plotter=plotter,
        ) as run:
            if beside is not None:
                run.say(f"There is an unfinished run; this command goes on with it: {resume_command(shown(beside))}")
            if resume is not None:
                done, total = run.journal.num_epochs(), plan.finetuning.total_epochs
                run.say(f"Going on with a run that has {done} of {total} epochs.")
            seconds = SECONDS_AT_END
            try:
                run.journal.record(identity)
                result = await _run(plan, run, traces, preemption)
                run.end(RunState.COMPLETED)
                preemption.completed = True
            except BaseException as error:
                cause = preemption.cause(error)
                for line in await end_after(cause, run):
                    run.warn(line)
                seconds = _seconds_for_trackers(cause, preemption)
                if cause is error:
                    raise
                raise cause from error
            finally:
                for line in await trackers.end(seconds):
                    run.warn(line)
            return result


def _seconds_for_trackers(cause: BaseException, preemption: Preemption) -> float:
    """How long the end of the run waits for them; what they lack can be sent later."""
    if isinstance(cause, Preempted):
        return min(SECONDS_AT_END, max(0.0, preemption.seconds_left - _SECONDS_TO_CLOSE))
    return SECONDS_AFTER_INTERRUPT if isinstance(cause, CancelledError) else SECONDS_AT_END


async def build_stages(plan: Plan, builder: WorkflowBuilder) -> list[RunComponents]:
    """Build the components of all stages, so that what cannot work is found before the first one.

    Raises:
        ConfigError: components cannot train in phases, or not with each other.

    """
    built = [await build_components(stage.finetuning, builder) for stage in plan.stages]
    findings = []
    for stage, components in zip(plan.stages, built, strict=True):
        if stage.finetuning.phase is not None:
            findings += [f"{stage.place}: {finding}" for finding in await _phase_findings(stage, components)]
    if findings:
        raise ConfigError(findings)
    return built


async def _phase_findings(stage: Stage, components: RunComponents) -> list[str]:
    """Why these components cannot train the phase."""
    trainer, adapter = components.trainer, components.adapter
    fits = {trainer: isinstance(trainer, EpochTrainer), adapter: isinstance(adapter, TakesOver)}
    if unfit := [type(each).__name__ for each, fit in fits.items() if not fit]:
        return [f"{' and '.join(unfit)} cannot train in phases; `local_trainer` and `local_trainer_adapter` can"]
    try:
        await adapter.initialize(stage.finetuning)
    except (BackendError, ConfigError) as error:
        return [error.in_line]
    return found(recipe_refusals(stage, adapter.recipe))


async def build_components(finetuning: FinetuneConfig, builder: WorkflowBuilder) -> RunComponents:
    """Build the three components that the `finetuning` section names, and bind them to each other."""
    assert finetuning.trainer is not None, "checked when the configuration was validated"
    assert finetuning.trajectory_builder is not None, "likewise"
    assert finetuning.trainer_adapter is not None, "likewise"
    trajectories = await builder.get_trajectory_builder(finetuning.trajectory_builder)
    adapter = await builder.get_trainer_adapter(finetuning.trainer_adapter)
    trainer = await builder.get_trainer(finetuning.trainer, trajectories, adapter)
    if finetuning.max_staleness and not isinstance(trainer, EpochTrainer):
        seen = f"{finetuning.max_staleness}, but {type(trainer).__name__} plays no epoch ahead"
        raise ConfigError(
            [f"finetuning.max_staleness: {seen}"],
            hint="set it to 0, or use an EpochTrainer, such as local_trainer",
        )
    return RunComponents(builder=builder, trajectories=trajectories, trainer=trainer, adapter=adapter)


async def _run(plan: Plan, run: RunLog, traces: Traces, preemption: Preemption) -> RunResult:
    """Build once, train and export; summarise when everything is closed."""
    run.append(StepBegun(LOADING))
    async with AsyncExitStack() as stack:
        builder = await stack.enter_async_context(plan.opened(run.journal.run_dir))
        await open_sessions(stack, plan, builder, run, traces)
        stages = await build_stages(plan, builder)
        try:
            async with watched_servers(builder):
                statuses = await _trained(stages, plan, run)
            components = stages[-1]
            run.append(StepBegun("saving the results"))
            model = await components.adapter.export_model(LAST_MODEL)
            served = await components.adapter.served_model()
            best = await export_best(components.adapter, run) if plan.finetuning.export_best else None
            reason = None if plan.held_out is None else no_verdict(components.trainer)
        except BaseException as error:
            number = max(0, len(run.journal.phases()) - 1)
            current = stages[number]
            guards.explain(error, run.epochs(), plan.stages[number].finetuning.guards)
            dead = None
            if not preemption.begun:
                dead = await dead_server(error, plan.given, builder, current.adapter)
                await judge_after(dead or error, current.trainer, run)
            await _clean_up_after(error, _trainers(stages))
            if dead is not None and dead is not error:
                raise dead from error
            raise
        for trainer in _trainers(stages):
            await trainer.cleanup()
    run_dir = run.journal.run_dir
    summary, comparison = summary_of(
        run,
        state=RunState.COMPLETED,
        ended_early=run.journal.info().message,
        judged_epoch=len(statuses),
        causes=await findings_of(run_dir, ended=True),
        model=path_in_run(model, run_dir),
        served_model=None if served is None else str(served),
        best_model=path_in_run(best, run_dir),
    )
    summary = await run.summarised(summary)
    logger.info("Finetuning completed successfully!")
    played = (each.question for phase in (Phase.VALIDATION, Phase.TRAIN) for each in run.journal.rollouts(phase, 0))
    question = min(islice(filter(None, played), _QUESTIONS), key=len, default="")
    return RunResult(
        run.run_id,
        shown(run_dir),
        statuses,
        summary,
        comparison,
        plan.students,
        served,
        no_verdict=reason,
        question=question,
    )


async def _trained(stages: Sequence[RunComponents], plan: Plan, run: RunLog) -> list[TrainingJobStatus]:
    """Run all epochs, with a validation before and after each stage, whichever trainer is configured."""
    statuses: list[TrainingJobStatus] = []
    known = run.journal.phases()
    for number, (components, stage) in enumerate(zip(stages, plan.stages, strict=True)):
        if number < len(known) - 1:  # an earlier process has trained it
            statuses += statuses_of(run.journal, run.run_id, len(statuses), known[number + 1].first_epoch)
            continue
        begins = number >= len(known)
        await components.begin(stage.finetuning, after=stages[number - 1] if begins and number else None)
        if number == max(0, len(known) - 1):
            if run.goes_on and isinstance(components.adapter, SendsAgain):
                done = [job.id for job in run.journal.jobs() if job.status is JobStatus.COMPLETED]
                await components.adapter.send_again(done)
            folder = shown(run.journal.run_dir)
            run.append(RunBegun(run.run_id, folder, plan.finetuning.total_epochs, run.goes_on))
            for text in warnings_of(stages, plan):
                run.warn(text)
        if begins and (name := stage.finetuning.phase) is not None:
            run.append(TrainingPhase(name=name, first_epoch=len(statuses), num_epochs=stage.finetuning.num_epochs))
        statuses += await _trained_in_stage(components, stage, run, validates=plan.held_out is not None)
    return statuses


async def _trained_in_stage(
    components: RunComponents, stage: Stage, run: RunLog, *, validates: bool
) -> list[TrainingJobStatus]:
    """Run the epochs of a stage; a validation that the stage before it has played is not played again."""
    trainer, num_epochs = components.trainer, stage.finetuning.num_epochs
    judged = validates and _is_judged(trainer, run)
    if judged:
        await validate(trainer, run.first_epoch, run)
    if isinstance(trainer, EpochTrainer):
        statuses = await trainer.run(num_epochs)
    else:
        statuses = await run_foreign(trainer, components.trajectories, components.adapter, run, num_epochs)
    _check_statuses(statuses, waits=no_verdict(trainer) is None)
    if judged and _is_judged(trainer, run):
        await validate(trainer, run.first_epoch + len(statuses), run)
    logger.debug("Final metrics: %s", await trainer.get_metrics(run.run_id))
    return statuses


def warnings_of(stages: Sequence[RunComponents], plan: Plan) -> list[str]:
    """Likely problems of all stages, each once; the adapters must be initialized."""
    texts = list(plan.warnings)
    for components, stage in zip(stages, plan.stages, strict=True):
        texts += [*found(recipe_warnings(stage, components.adapter.recipe)), *components.adapter.warnings()]
    return list(dict.fromkeys(texts))


def _is_judged(trainer: Trainer, run: RunLog) -> bool:
    """False, with a warning, if the held-out examples cannot be played with the trained weights."""
    reason = no_verdict(trainer)
    if reason is not None:
        run.warn(f"No verdict: {reason}.")
    return reason is None


def _check_statuses(statuses: list[TrainingJobStatus], *, waits: bool) -> None:
    if not statuses:
        raise RunFailed(
            "the trainer ended without a single training job",
            hint="see the trainer's log above; its `run` must return one status per job",
        )
    for status in statuses:
        guards.check_job(status)
    unfinished = [s for s in statuses if s.status is not TrainingStatusEnum.COMPLETED]
    if unfinished and waits:
        raise RunFailed(
            f"the trainer ended while {len(unfinished)} of {len(statuses)} jobs are not done ({unfinished[0].status})",
            hint="let the trainer wait for its jobs; the model cannot be judged before they are done",
        )
    guards.check_trained(statuses)


def _trainers(stages: Sequence[RunComponents]) -> list[Trainer]:
    """The trainers, each once."""
    return list({id(components.trainer): components.trainer for components in stages}.values())


async def _clean_up_after(error: BaseException, trainers: Sequence[Trainer]) -> None:
    """Let the trainers clean up; a second error must not hide why the run ended."""
    for trainer in trainers:
        try:
            await trainer.cleanup()
        except Exception as second:
            logger.exception("cleanup failed, too")
            error.add_note(f"cleanup failed, too: {type(second).__name__}: {second}")
