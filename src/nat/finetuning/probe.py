"""Play the first epoch with the untrained model, train nothing, and say what it shows."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from pydantic import BaseModel, ConfigDict

from nat.data_models.finetuning import FinetuneConfig, FinetuneRunConfig
from nat.data_models.rollout_failure import FailureCount
from nat.data_models.score import interval
from nat.errors import ANY_FAILURE, ConfigError, RunFailed, describe_error
from nat.finetuning import guards
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.window import Window, share_of_equal
from nat.finetuning.epoch import PlayedEpoch, epoch_record
from nat.finetuning.health import check_health, dead_server
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder, abandoned_on_error
from nat.finetuning.plan import Plan, resolve
from nat.finetuning.run_log import Observer, RolloutsBegun, StepBegun, utc_now
from nat.finetuning.runtime import LOADING, build_components
from nat.finetuning.stage import Stage, playing_stage
from nat.finetuning.trajectories.groups import records_of
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilderConfig
from nat.finetuning.workflow_sessions import observe_rollouts, opened_remote, training_session
from nat.rollout.server_watch import watched_servers
from nat.rollout.session import in_pass, using_session
from nat.runs.records import Finding, Phase
from nat.runs.rollouts import RolloutRecord, tally
from nat.secrets import redacted_logs
from nat.wire.training import Compares

logger = logging.getLogger(__name__)

RUN_ID = "probe"
_FILE = "nat probe --output FILE"
_WORDING = {
    "nat runs show latest --epoch 1 --worst 1": _FILE,
    "nat runs imitate latest": "nat runs imitate RUN",
    "failures.txt": f"the file of `{_FILE}`",
}
"""A probe has no folder."""


class ProbeReport(BaseModel):
    """What an untrained epoch has shown."""

    model_config = ConfigDict(frozen=True)

    config_file: str
    llms: dict[str, str]
    """Each LLM's key and where it is served."""
    reward: str | None
    """The evaluator."""
    num_examples: int
    """Examples in the dataset."""
    num_rollouts: int
    seconds: float
    """Of the rollouts."""
    left_out: dict[str, int]
    """Rollouts that training could not use, by cause."""
    failures: list[FailureCount]
    mean_score: float | None = None
    """Of the rollouts that training could use; None without one."""
    lowest: float | None = None
    highest: float | None = None
    truncated: float
    """Share of the rollouts in which an answer hit its token limit."""
    num_groups: int = 0
    """Examples with a rollout that training could use."""
    num_differing: int = 0
    """Of these, the ones whose rollouts differ in reward."""
    interval: tuple[float, float] | None = None
    """95 % interval of the share of groups with a difference; None without groups."""
    stops: str | None = None
    """Why a run would end after these rollouts."""
    has_signal: bool
    """Whether an update would have something to learn from."""
    findings: list[Finding]
    """The likeliest first."""
    next_step: str
    warnings: list[str]

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        if self.stops is not None:
            return f"Training on these examples has no signal: {self.stops}"
        counted = f"{self.num_differing} of {self.num_groups} groups have a difference in reward"
        return f"Training on these examples has {'a' if self.has_signal else 'no'} signal: {counted}."


@dataclass(frozen=True)
class ProbeResult:
    """The report, and the rollouts that it is about."""

    report: ProbeReport
    records: Sequence[RolloutRecord]


async def probe(
    given: FinetuneRunConfig, *, examples: int | None = None, observe: Observer = lambda _event: None
) -> ProbeResult:
    """Play the first epoch of a run, or so many of its examples; nothing is trained, and no file is written.

    Raises what `run_finetuning` would raise before its first epoch, and BackendError if a server dies.
    """
    plan = await resolve(given)
    stage = playing_stage(plan.stages)
    if stage is None:
        raise ConfigError(["finetuning.trajectory_builder: it reads a file, so there are no rollouts to probe"])
    if examples is not None and isinstance(stage.builder, EvalTrajectoryBuilderConfig):
        bounded = stage.builder.model_copy(update={"examples_per_epoch": examples, "max_refills": 0})
        builders = {**plan.config.trajectory_builders, str(stage.finetuning.trajectory_builder): bounded}
        config = plan.config.model_copy(update={"trajectory_builders": builders})
        plan, stage = replace(plan, config=config), replace(stage, builder=bounded)
    observe(StepBegun(LOADING))
    async with AsyncExitStack() as stack:
        stack.enter_context(redacted_logs())
        builder = await stack.enter_async_context(plan.opened())
        remote = await opened_remote(stack, plan, builder)
        components = await build_components(stage.finetuning, builder)
        stack.push_async_callback(_clean_up, components.trainer)
        await components.trajectories.initialize(stage.finetuning)
        await components.adapter.initialize(stage.finetuning)
        await check_health(components.adapter)
        await builder.probe_llms()
        llms = {name: (await builder.get_llm_provider(name)).description for name in builder.llm_names}
        session = stack.enter_context(using_session(training_session(plan, builder, remote)))
        observe_rollouts(session, observe)
        observe(RolloutsBegun(Phase.TRAIN, plan.num_rollouts(stage).get(Phase.TRAIN)))
        began = monotonic()
        async with watched_servers(builder):
            played = await _play(components.trajectories, examples)
        seconds, stopped = monotonic() - began, _stopped(played, stage.finetuning)
        if stopped is not None and (dead := await dead_server(stopped, plan.given, builder, components.adapter)):
            raise dead from stopped
        compares = components.adapter.recipe.compares
    report = _report(plan, stage, played, compares=compares, llms=llms, seconds=seconds, stopped=stopped)
    return ProbeResult(report, played.records)


async def _clean_up(trainer: Trainer) -> None:
    """Let the trainer close what the adapter has opened; it may not expect that it was never initialized."""
    try:
        await trainer.cleanup()
    except ANY_FAILURE as error:  # the boundary of a plug-in's code after the work is done
        logger.warning("%s.cleanup failed after the probe: %s", type(trainer).__name__, describe_error(error))


async def _play(trajectories: TrajectoryBuilder, examples: int | None) -> PlayedEpoch:
    """The rollouts of the first epoch."""
    meta = {"epoch": 0, "run_id": RUN_ID}
    async with abandoned_on_error(trajectories, RUN_ID):
        with in_pass(choose=None if examples is None else lambda ids: ids[:examples]):
            await trajectories.start_run(RUN_ID, meta=meta)
        collected = await trajectories.finalize(RUN_ID, meta=meta)
    guards.check_rewards(collected)
    records = list(trajectories.rollouts(RUN_ID) or records_of(collected))
    return PlayedEpoch(0, RUN_ID, collected, collected, records)


def _stopped(played: PlayedEpoch, finetuning: FinetuneConfig) -> RunFailed | None:
    """The error with which a run would end after these rollouts."""
    counts, functions, model = tally(played.records), finetuning.target_functions, finetuning.target_model
    try:
        guards.check_trajectories(counts, target_functions=functions, target_model=model)
        guards.check_failures(counts, max_failure_rate=finetuning.max_failure_rate)
    except RunFailed as error:
        return error
    return None


def _report(
    plan: Plan,
    stage: Stage,
    played: PlayedEpoch,
    *,
    compares: Compares,
    llms: dict[str, str],
    seconds: float,
    stopped: RunFailed | None,
) -> ProbeReport:
    finetuning, counts = stage.finetuning, tally(played.records)
    found: dict[str, Any] = {}
    learns, findings = False, list[Finding]()
    if played.collected.trajectories:
        stages = {"epoch": seconds, "rollout": seconds}
        epoch = epoch_record(played, timestamp=utc_now(), curriculum=None, seconds=stages, job={})
        functions, model = finetuning.target_functions, finetuning.target_model
        window = Window(
            [epoch],
            guards=finetuning.guards,
            compares=compares,
            rollouts=played.records,
            ended=False,
            target_functions=functions,
            target_model=model,
        )
        found_here = diagnosis_of(window).findings
        findings = [each.model_copy(update={"remedy": _reworded(each.remedy)}) for each in found_here]
        learns = compares == "nothing" or share_of_equal(epoch, compares) < 1
        differing = epoch.num_groups - epoch.groups_without_difference
        found = {
            "mean_score": epoch.avg_reward,
            "lowest": epoch.min_reward,
            "highest": epoch.max_reward,
            "num_groups": epoch.num_groups,
            "num_differing": differing,
            "interval": interval([1.0] * differing + [0.0] * (epoch.num_groups - differing), 0.0, 1.0),
        }
    hint = (stopped and stopped.hint) or (f"{findings[0].remedy} Then probe again." if findings else None)
    return ProbeReport(
        config_file=str(plan.given.config_file),
        llms=llms,
        reward=None if finetuning.reward_function is None else finetuning.reward_function.name,
        num_examples=len(plan.training.items),
        num_rollouts=counts.num_rollouts,
        seconds=seconds,
        left_out={str(cause): count for cause, count in counts.causes.most_common()},
        failures=list(counts.failures),
        truncated=sum(record.truncated for record in played.records) / max(1, len(played.records)),
        stops=None if stopped is None else stopped.message,
        has_signal=learns and stopped is None,
        findings=findings,
        next_step=_reworded(hint or f"train it: nat finetune --config_file {plan.given.config_file}"),
        warnings=list(plan.warnings),
        **found,
    )


def _reworded(text: str) -> str:
    for usual, here in _WORDING.items():
        text = text.replace(usual, here)
    return text
