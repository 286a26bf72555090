"""Play examples with the untrained model as the first epoch would, for some minutes, and judge what they show."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from typing import Any

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.defaults import missing_components
from nat.config.load import dump_resolved
from nat.data_models.component_ref import EvaluatorRef
from nat.data_models.config import Config
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.finetuning import FinetuneConfig, FinetuneRunConfig, RewardFunctionConfig
from nat.errors import ANY_FAILURE, ConfigError, NatError, RunFailed, describe_error, one_of
from nat.eval.dataset import answer_column_warning, copies
from nat.finetuning.diagnosis.conditions_of_scores import ENOUGH_TO_TELL
from nat.finetuning.dry_run import MEASURING, forecast_of
from nat.finetuning.events import Observer, Said, StepBegun
from nat.finetuning.example_choice import in_turn
from nat.finetuning.expected_load import load_of, remember_probe
from nat.finetuning.health import check_health
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.plan import Plan, configured, pinned, read_examples
from nat.finetuning.plan_rules import judge_findings, sampling_findings, unknown_reward, unlimited_answers
from nat.finetuning.probe.budget import FIRST_ROUND, FULL, is_clear, next_round
from nat.finetuning.probe.measure import measure
from nat.finetuning.probe.records import Ending, ProbeReport, Signal
from nat.finetuning.probe.rounds import PlayedExamples, Player
from nat.finetuning.probe.verdict import interim_text, judge
from nat.finetuning.proposals import proposals
from nat.finetuning.run_context import Stopwatch, utc_now
from nat.finetuning.runtime import LOADING, build_components
from nat.finetuning.stage import playing_stage, stages_of, trained_llm
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder, EvalTrajectoryBuilderConfig
from nat.finetuning.workflow_sessions import opened_remote, training_session
from nat.runs.plot import duration
from nat.runs.records import Phase
from nat.runs.rollouts import RolloutRecord
from nat.secrets import redacted_logs
from nat.sizing.load import RolloutLoad, epoch_seconds
from nat.wire import rewards

logger = logging.getLogger(__name__)

_LATE = 0.5
"""A round that takes this share of the bound longer than it may is canceled."""
RESCORED = 16
"""Examples whose outputs are scored again: more tell little about the noise, and a judge has its price."""


@dataclass(frozen=True)
class ProbeOptions:
    """What to play."""

    examples: int | None = None
    """At most; None for as many as `ENOUGH_TO_TELL` rollouts take."""
    generations: int = 8
    """Rollouts of each example."""
    rescores: int = 2
    """How often each output of the first `RESCORED` examples is scored again."""
    reward: str | None = None
    """Key of the evaluator, in place of `finetuning.reward_function.name`."""
    minutes: float = 3.0
    """No round begins after these, loading included; 0 is no bound."""


@dataclass(frozen=True)
class ProbeResult:
    """The report, and the rollouts that it is about."""

    report: ProbeReport
    records: Sequence[RolloutRecord]


async def probe(
    given: FinetuneRunConfig,
    options: ProbeOptions,
    *,
    observe: Observer = lambda _event: None,
    clock: Callable[[], float] = time.monotonic,
) -> ProbeResult:
    """Play examples in rounds, score them again, and judge, until the answer is clear or the time is over.

    Nothing is trained, and nothing is written but what rollouts took, for the next plan. A configuration without
    `finetuning.enabled` needs a workflow, a dataset and an evaluator. Otherwise the trainer adapter is opened as by
    `--dry_run`, because it may know how to reach the model. The clock gives seconds.

    Raises:
        ConfigError: the configuration is wrong or incomplete.
        DatasetError: the dataset cannot be read.
        BackendError: the model's server is unreachable, or died.
        RunFailed: the first rollouts did not end, though there was half as much time again.

    """
    watch = Stopwatch(clock)
    plan, examples = await _planned(given, options)
    observe(StepBegun(LOADING))
    async with AsyncExitStack() as stack:
        stack.enter_context(redacted_logs())
        builder = await stack.enter_async_context(replace(plan, config=_as_asked(plan.config, options)).opened())
        remote = await opened_remote(stack, plan, builder)
        adapter = await _opened_adapter(stack, plan, builder)
        across_groups = adapter is not None and adapter.recipe.compares == "batch"
        await builder.probe_llms()
        trajectories = await _trajectory_builder(plan.finetuning, builder, options)
        model = {name: (await builder.get_llm_provider(name)).description for name in builder.llm_names}
        player = Player(trajectories, builder, partial(training_session, plan, builder, remote), observe)
        judged = partial(_judged, plan=plan, model=model, across_groups=across_groups)
        report, played = await _in_rounds(player, examples, options, judged, watch)
        known = {"seconds": report.pace}
        if options.generations == plan.stages[0].num_generations and not across_groups:
            known |= {"groups": len(report.measured.groups), "differing": report.measured.num_differing}
        load = load_of(played.records, f"the probe of {utc_now():%d %B %H:%M} UTC", **known)
        if load is not None:
            remember_probe(plan, load)
            report = await _with_outlook(report, plan, load, adapter, observe)
    return ProbeResult(report, played.records)


async def _in_rounds(
    player: Player, examples: list[EvalInputItem], options: ProbeOptions, judged: Callable[..., Any], watch: Stopwatch
) -> tuple[ProbeReport, PlayedExamples]:
    """Play the examples in rounds, in this order, and judge after each."""
    bound, playing, ids = options.minutes * 60 or inf, 0.0, set[str]()
    played, largest, report, ending = None, None, None, Ending.PLAYED
    while left := [item for item in examples if str(item.id) not in ids]:
        began = watch.total
        items = left[: next_round(len(examples), len(ids), playing=playing, left=bound - began)]
        more = items and await player.round(
            items,
            rollouts=len(items) * options.generations,
            rescores=options.rescores if len(ids) < RESCORED else 0,
            patience=max(bound - began, 0.0) + _LATE * bound,
        )
        if not more:
            ending = Ending.TIME
            break
        played = more if played is None else played + more
        largest = more if largest is None or len(more.records) >= len(largest.records) else largest
        ids |= {str(item.id) for item in items} | {record.example_id for record in more.records}  # a builder may choose
        references = None
        if rewards.equal([scores_K[0] for scores_GK in played.scores_EGK for scores_K in scores_GK]):
            references = await player.reference_scores(played.examples)
        playing += watch.total - began
        report, clear = judged(played, largest=largest, references=references, before=report)
        player.observe(Said(interim_text(report, watch.total)))
        if clear and len(left) > len(items):
            ending = Ending.CLEAR
            break
    if report is None or played is None:
        raise RunFailed(
            f"the rollouts of the first {FIRST_ROUND} examples did not end in {duration(watch.total)}",
            hint="give them more --minutes, play fewer --generations, or let answers be shorter (max_tokens)",
        )
    return report.model_copy(update={"seconds": watch.total, "ending": ending}), played


def _judged(
    played: PlayedExamples, plan: Plan, *, largest: PlayedExamples, before: ProbeReport | None, **known: Any
) -> tuple[ProbeReport, bool]:
    """The report so far, and whether it is clear after the one before it; the `largest` round tells the speed."""
    (measured, window), count = measure(played, plan, **known), len(largest.records)
    report = judge(measured, window).model_copy(update={"pace": largest.seconds / max(1, count)})
    full = count >= FULL * plan.config.eval.general.max_concurrency
    return report, is_clear(report, before, weak_below=1 - window.guards.max_equal_groups, full=full)


async def _with_outlook(
    report: ProbeReport, plan: Plan, load: RolloutLoad, adapter: TrainerAdapter | None, observe: Observer
) -> ProbeReport:
    """The report with the time of an epoch and the proposals.

    Speed is measured where there is a signal and a backend; one that fails then costs the outlook, not the report.
    """
    stage, epoch, forecast = plan.stages[0], None, None
    if adapter is not None and report.signal is not Signal.NONE:
        observe(StepBegun(MEASURING))
        try:
            forecast = await forecast_of(plan, stage, load, adapter)
        except NatError as error:
            observe(Said(f"the speed could not be measured: {error.message}"))
    if forecast is not None:
        epoch = epoch_seconds(forecast.speed, load, plan.num_rollouts(stage)[Phase.TRAIN], forecast.optimizer_steps)
    return report.model_copy(update={"epoch": epoch, "proposals": proposals(plan, stage, load, forecast)})


async def _planned(given: FinetuneRunConfig, options: ProbeOptions) -> tuple[Plan, list[EvalInputItem]]:
    """The plan of the stage that plays, and the examples to play, in turn."""
    config, given = configured(given)
    if (playing := playing_stage(stages_of(config))) is not None:
        config = config.model_copy(update={"finetuning": playing.finetuning})
    config = _with_reward(config, options.reward, given)
    stages = stages_of(config)
    findings = [
        *missing_components(config),
        *judge_findings(config, stages),
        *sampling_findings(stages[0], config.llms),
    ]
    if findings:
        raise ConfigError(findings, source=str(given.config_file))
    config = await pinned(config)
    items, dataset = await read_examples(config, given.dataset, config)
    warnings = [answer_column_warning(items, dataset), *unlimited_answers(trained_llm(stages), config.llms)]
    if again := copies(items):
        warnings.append(f"{len(again)} of {len(items)} examples repeat others and are not played.")
        items = [item for item in items if item.example not in again]
    plan = Plan(
        config=config,
        config_text=dump_resolved(config),
        given=given,
        stages=stages,
        num_examples=len(items),
        warnings=tuple(filter(None, warnings)),
    )
    by_id, wanted = {str(item.id): item for item in items}, options.examples
    wanted = wanted or ceil(ENOUGH_TO_TELL / options.generations)
    return plan, [by_id[chosen] for chosen in in_turn(list(by_id), wanted, begin=0, seed=config.finetuning.seed)]


def _with_reward(config: Config, name: str | None, given: FinetuneRunConfig) -> Config:
    """The configuration with the named evaluator as reward; without a name its own, or its only evaluator."""
    evaluators, own = config.eval.evaluators, config.finetuning.reward_function
    wanted = name or (own.name if own is not None else next(iter(evaluators)) if len(evaluators) == 1 else None)
    if wanted is None:
        raise ConfigError(
            [f"finetuning.reward_function: not set, so no rollout has a reward. Evaluators: {one_of(evaluators)}"],
            source=str(given.config_file),
            hint="add an evaluator under eval.evaluators, and name it there or with --reward",
        )
    if findings := unknown_reward(wanted, evaluators):
        raise ConfigError(findings, source=str(given.config_file))
    reference = EvaluatorRef(wanted)
    reward = (own or RewardFunctionConfig(name=reference)).model_copy(update={"name": reference})
    return config.model_copy(update={"finetuning": config.finetuning.model_copy(update={"reward_function": reward})})


def _as_asked(config: Config, options: ProbeOptions) -> Config:
    """The configuration with the asked number of generations, as far as its builder has such an option."""
    evaluators = {name: _without_cache(own) for name, own in config.eval.evaluators.items()}
    config = config.model_copy(update={"eval": config.eval.model_copy(update={"evaluators": evaluators})})
    name = str(config.finetuning.trajectory_builder)
    if (own := config.trajectory_builders.get(name)) is None:
        return config
    numbers = {"num_generations": options.generations, "examples_per_epoch": None, "max_refills": 0}
    known = {key: value for key, value in numbers.items() if key in type(own).model_fields}
    builders = {**config.trajectory_builders, name: own.model_copy(update=known)}
    return config.model_copy(update={"trajectory_builders": builders})


def _without_cache(evaluator: EvaluatorBaseConfig) -> EvaluatorBaseConfig:
    """Scores that are remembered would hide the noise of a second scoring."""
    return evaluator.model_copy(update={"cache": False}) if "cache" in type(evaluator).model_fields else evaluator


async def _opened_adapter(stack: AsyncExitStack, plan: Plan, builder: WorkflowBuilder) -> TrainerAdapter | None:
    """The adapter, initialized; None without the `finetuning` section. Its trainer is built to clean up at the end."""
    if not plan.finetuning.enabled:
        return None
    components = await build_components(plan.finetuning, builder)
    stack.push_async_callback(_clean_up, components.trainer)
    await components.adapter.initialize(plan.finetuning)
    await check_health(components.adapter)
    return components.adapter


async def _clean_up(trainer: Trainer) -> None:
    """Let the trainer close what the adapter opened; it may not expect that it was never initialized."""
    try:
        await trainer.cleanup()
    except ANY_FAILURE as error:
        logger.warning("%s.cleanup failed after the probe: %s", type(trainer).__name__, describe_error(error))


async def _trajectory_builder(
    finetuning: FinetuneConfig, builder: WorkflowBuilder, options: ProbeOptions
) -> TrajectoryBuilder:
    name = finetuning.trajectory_builder
    trajectories: TrajectoryBuilder = (
        EvalTrajectoryBuilder(EvalTrajectoryBuilderConfig(num_generations=options.generations))
        if name is None
        else await builder.get_trajectory_builder(name)
    )
    await trajectories.initialize(finetuning)
    return trajectories
