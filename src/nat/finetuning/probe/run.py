"""Play some examples with the untrained model as the first epoch would, and score their outputs again."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.defaults import missing_components
from nat.data_models.component_ref import EvaluatorRef
from nat.data_models.config import Config
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.finetuning import FinetuneConfig, FinetuneRunConfig, RewardFunctionConfig
from nat.errors import ANY_FAILURE, ConfigError, describe_error, one_of
from nat.eval.comparison import SidePasses, comparing
from nat.eval.dataset import answer_column_warning, copies
from nat.eval.evaluate import score_items
from nat.finetuning import guards
from nat.finetuning.diagnosis.facts import ReferenceScores
from nat.finetuning.events import Observer, RolloutsBegun, StepBegun
from nat.finetuning.example_choice import in_turn
from nat.finetuning.health import check_health
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder, abandoned_on_error
from nat.finetuning.plan import Plan, configured, pinned, read_examples
from nat.finetuning.plan_rules import judge_findings, sampling_findings, unknown_reward, unlimited_answers
from nat.finetuning.probe.measure import PlayedProbe, measure
from nat.finetuning.probe.records import ProbeReport
from nat.finetuning.probe.verdict import judge
from nat.finetuning.run_context import Stopwatch, utc_now
from nat.finetuning.runtime import LOADING, build_components
from nat.finetuning.stage import playing_stage, stages_of, trained_llm
from nat.finetuning.trajectories.groups import records_of
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder, EvalTrajectoryBuilderConfig
from nat.finetuning.workflow_sessions import observed_rollouts, opened_remote, training_session
from nat.rollout.loop_watch import watched_loop
from nat.rollout.server_watch import check_llm_servers, watched_servers
from nat.rollout.session import WorkflowSession, in_pass, rollouts_open, using_session
from nat.runs.records import Phase
from nat.runs.rollouts import RolloutRecord
from nat.secrets import redacted_logs
from nat.wire import rewards

logger = logging.getLogger(__name__)

RUN_ID = "probe"
_META = {"epoch": 0, "run_id": RUN_ID}


@dataclass(frozen=True)
class ProbeOptions:
    """What to play."""

    examples: int = 16
    generations: int = 8
    """Rollouts of each example."""
    rescores: int = 2
    """How often each output is scored again."""
    reward: str | None = None
    """Key of the evaluator, in place of `finetuning.reward_function.name`."""


@dataclass(frozen=True)
class ProbeResult:
    """The report, and the rollouts that it is about."""

    report: ProbeReport
    records: Sequence[RolloutRecord]


async def probe(
    given: FinetuneRunConfig, options: ProbeOptions, *, observe: Observer = lambda _event: None
) -> ProbeResult:
    """Play `options.examples` examples, score them again, and judge; nothing is trained and nothing is written.

    A configuration without `finetuning.enabled` needs a workflow, a dataset and an evaluator. Otherwise the trainer
    adapter is opened as by `--dry_run`, because it may know how to reach the model.

    Raises:
        ConfigError: the configuration is wrong or incomplete.
        DatasetError: the dataset cannot be read.
        BackendError: the model's server is unreachable, or died.

    """
    plan, chosen = await _planned(given, options)
    observe(StepBegun(LOADING))
    async with AsyncExitStack() as stack:
        stack.enter_context(redacted_logs())
        builder = await stack.enter_async_context(replace(plan, config=_as_asked(plan.config, options)).opened())
        remote = await opened_remote(stack, plan, builder)
        session = training_session(plan, builder, remote)
        adapter = await _opened_adapter(stack, plan, builder)
        across_groups = adapter is not None and adapter.recipe.compares == "batch"
        await builder.probe_llms()
        stack.enter_context(using_session(session))
        stack.enter_context(watched_loop())
        trajectories = await _trajectory_builder(plan.finetuning, builder, options)
        observe(RolloutsBegun(Phase.TRAIN, len(chosen) * options.generations))
        with observed_rollouts(session, observe):
            async with watched_servers(builder, rollouts_open):
                played = await _play(trajectories, chosen)
        if any(record.left_out is not None for record in played.records):
            await check_llm_servers(builder)
        if options.rescores and played.passes:
            observe(
                StepBegun(f"scoring the answers again, to measure the noise of the score ({options.rescores} times)")
            )
        scores_EGK = await _scored_again(played, options.rescores, trajectories, session)
        references = None
        if rewards.equal([scores_K[0] for scores_GK in scores_EGK for scores_K in scores_GK]):
            references = await _reference_scores(chosen, trajectories, session)
        model = {name: (await builder.get_llm_provider(name)).description for name in builder.llm_names}
    measured, window = measure(
        played, plan, scores_EGK=scores_EGK, references=references, model=model, across_groups=across_groups
    )
    return ProbeResult(judge(measured, window), played.records)


async def _planned(given: FinetuneRunConfig, options: ProbeOptions) -> tuple[Plan, list[EvalInputItem]]:
    """The plan of the stage that plays, and the examples to play."""
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
        config=config, given=given, stages=stages, num_examples=len(items), warnings=tuple(filter(None, warnings))
    )
    chosen = set(in_turn([str(item.id) for item in items], options.examples, begin=0, seed=config.finetuning.seed))
    return plan, [item for item in items if str(item.id) in chosen]


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
    """The configuration with the asked numbers of examples and generations, as far as its builder has such options."""
    evaluators = {name: _without_cache(own) for name, own in config.eval.evaluators.items()}
    config = config.model_copy(update={"eval": config.eval.model_copy(update={"evaluators": evaluators})})
    name = str(config.finetuning.trajectory_builder)
    if (own := config.trajectory_builders.get(name)) is None:
        return config
    known = {key: value for key, value in _numbers(options).items() if key in type(own).model_fields}
    builders = {**config.trajectory_builders, name: own.model_copy(update=known)}
    return config.model_copy(update={"trajectory_builders": builders})


def _without_cache(evaluator: EvaluatorBaseConfig) -> EvaluatorBaseConfig:
    """Scores that are remembered would hide the noise of a second scoring."""
    return evaluator.model_copy(update={"cache": False}) if "cache" in type(evaluator).model_fields else evaluator


def _numbers(options: ProbeOptions) -> dict[str, Any]:
    """The options of an `EvalTrajectoryBuilderConfig`: its first epoch plays the probe's examples, each once."""
    numbers = {"num_generations": options.generations, "examples_per_epoch": options.examples}
    return {**numbers, "choose_examples": "in_turn", "max_refills": 0}


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
        EvalTrajectoryBuilder(EvalTrajectoryBuilderConfig(**_numbers(options)))
        if name is None
        else await builder.get_trajectory_builder(name)
    )
    await trajectories.initialize(finetuning)
    return trajectories


async def _play(trajectories: TrajectoryBuilder, examples: Sequence[EvalInputItem]) -> PlayedProbe:
    """The rollouts of the first epoch; the builder's passes are kept, because their outputs are scored again."""
    watch, ids = Stopwatch(), {str(item.id) for item in examples}
    async with abandoned_on_error(trajectories, RUN_ID):
        with in_pass(choose=lambda _every: ids):
            await trajectories.start_run(RUN_ID, meta=_META)
        passes = list(trajectories.evaluation_runs[RUN_ID]) if isinstance(trajectories, EvalTrajectoryBuilder) else []
        collected = await trajectories.finalize(RUN_ID, meta=_META)
    guards.check_rewards(collected)
    return PlayedProbe(
        examples=examples,
        collected=collected,
        records=trajectories.rollouts(RUN_ID) or records_of(collected),
        seconds=watch.total,
        ended_at=utc_now(),
        passes=[task.result() for task in passes],
    )


async def _scored_again(
    played: PlayedProbe, rescores: int, trajectories: TrajectoryBuilder, session: WorkflowSession
) -> list[list[list[float]]]:
    """All scores of each output of each example, the reward first; without outputs, the rewards alone."""
    scores = {
        (record.example_id, record.generation): [record.reward]
        for record in played.records
        if record.left_out is None and record.reward is not None
    }
    for _ in range(rescores):
        with comparing(SidePasses(len(played.passes))):
            async with asyncio.TaskGroup() as tasks:
                scored = [
                    tasks.create_task(
                        _rewards([i for i in items if (str(i.id), generation) in scores], trajectories, session)
                    )
                    for generation, items in enumerate(output.eval_input.eval_input_items for output in played.passes)
                ]
        for generation, task in enumerate(scored):
            for example, reward in task.result().items():
                scores[example, generation].append(reward)
    by_example: dict[str, list[list[float]]] = {}
    for (example, _), found in scores.items():
        by_example.setdefault(example, []).append(found)
    return list(by_example.values())


async def _reference_scores(
    examples: Sequence[EvalInputItem], trajectories: TrajectoryBuilder, session: WorkflowSession
) -> ReferenceScores | None:
    """Scores of the expected answers, for their own examples and for others; None if there are no such scores."""
    known = [item for item in examples if item.expected_output_obj is not None]
    others = [*known[1:], *known[:1]]
    pairs = [
        (item, other.expected_output_obj)
        for item, other in zip(known, others, strict=True)
        if item.expected_output_obj != other.expected_output_obj
    ]
    right = [item.copy_with_updates(output_obj=item.expected_output_obj) for item, _ in pairs]
    wrong = [item.copy_with_updates(output_obj=other) for item, other in pairs]
    with comparing(SidePasses(2)):
        found = await asyncio.gather(*(_rewards(items, trajectories, session) for items in (right, wrong)))
    scores = [list(own.values()) for own in found]
    return ReferenceScores(right=fmean(scores[0]), wrong=fmean(scores[1])) if all(scores) else None


async def _rewards(
    items: list[EvalInputItem], trajectories: TrajectoryBuilder, session: WorkflowSession
) -> dict[str, float]:
    """The rewards of outputs by example; what cannot be scored has none."""
    reward = trajectories.run_config.reward_function
    assert reward is not None, "set before the run"
    evaluator = session.builder.get_evaluator(reward.name)
    output = await score_items(reward.name, evaluator, items, session.config.eval.general)
    found = {}
    for score in output.eval_output_items:
        if score.score is not None:
            try:
                found[str(score.id)] = await trajectories.compute_reward(score, dict(_META))
            except ANY_FAILURE as error:  # the boundary of one score: the reward is user code
                logger.debug("compute_reward failed", exc_info=error)
    return found
