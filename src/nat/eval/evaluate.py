"""Run one evaluation: dataset → rollouts → scores → report files."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from nat.builder.context import own_steps
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.config import Config
from nat.data_models.evaluate import DatasetBaseConfig, EvalGeneralConfig
from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput, Rollout
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput
from nat.data_models.rollout_failure import RolloutFailure
from nat.data_models.score import is_score
from nat.errors import EvaluationError, first_error
from nat.eval.comparison import compared
from nat.eval.dataset import repeat_items
from nat.eval.dataset_source import read_examples
from nat.eval.eval_callbacks import EvalCallbackManager, build_eval_result
from nat.eval.report import check_writable, write_reports
from nat.eval.result_path import WHOLE, JsonPath, answer_of, compile_path
from nat.eval.scoring import Scoring, average
from nat.eval.usage_stats import usage_of
from nat.rollout.keeping import Keeper, PassKeeper
from nat.rollout.session import WorkflowSession, current_pass, current_session, opened_session

__all__ = ["EvaluationRun", "EvaluationRunConfig", "EvaluationRunOutput"]

_KEEPS_NOTHING = Keeper(known={}, keep=lambda *_: None)


class EvaluationRun:
    """Runs the workflow on every item of a dataset, and every evaluator on every answer."""

    def __init__(self, config: EvaluationRunConfig, callback_manager: EvalCallbackManager | None = None) -> None:
        """Without `callback_manager`, an evaluation that writes reports calls the callbacks of the YAML."""
        self.config = config
        self.callback_manager = callback_manager

    async def run_and_evaluate(
        self, session_manager: WorkflowSession | None = None, job_id: str | None = None
    ) -> EvaluationRunOutput:
        """Run and score every item.

        The workflow is that of `session_manager`; without it, that of the open session for the config file; without
        that, it is built here and closed at the end. With an `endpoint` it runs there. With `job_id` the reports are
        written to a folder of that name.

        Raises:
            ConfigError: the configuration is wrong.
            DatasetError: the dataset cannot be read.
            EvaluationError: `result_json_path` is no JSON path, or a name cannot be a file name.

        """
        config = self.config
        session = session_manager or current_session(config.config_file, config.override, config.endpoint)
        if session is not None:
            return await self._evaluate(session, job_id)
        limit = config.endpoint_timeout
        async with opened_session(
            config.config_file, config.override, endpoint=config.endpoint, endpoint_timeout=limit
        ) as session:
            return await self._evaluate(session, job_id)

    async def _evaluate(self, session: WorkflowSession, job_id: str | None) -> EvaluationRunOutput:
        pass_index = session.begin_pass()  # before anything is awaited, so that passes count in the order they start
        path = answer_path(self.config.result_json_path)
        if self.config.write_output:
            check_writable(session.config.eval.general.report_dir, "eval.general.output_dir")
        evaluators = {name: session.builder.get_evaluator(name) for name in session.config.eval.evaluators}
        if (file := self.config.dataset) not in session.examples:
            session.examples[file] = await read_examples(session.config.eval, file, session.builder)
        examples = session.examples[file]
        dataset, items = examples.dataset, repeat_items(examples.items, self.config.reps)
        chosen = [str(item.id) for item in items]
        if (choose := current_pass().choose) is not None:
            chosen = list(choose(chosen))
        items = [item.model_copy(deep=True) for item in items if str(item.id) in set(chosen)]
        callbacks = self.callback_manager or EvalCallbackManager(
            await session.builder.get_eval_callbacks() if self.config.write_output else ()
        )
        await _announce(callbacks, session.config, dataset, items, job_id)
        for announce in session.on_pass:
            announce(len(items))
        with callbacks.evaluation_context():
            kept = (current_pass().keeper or _KEEPS_NOTHING).of_pass(pass_index)
            played = await _play_all(session, items, kept, path, callbacks)
            answered = [item for _, item, failure in played if failure is None]
            with own_steps() as kept.steps:
                results = await _score_all(evaluators, answered, session.config.eval.general, callbacks, kept)
        if session.phase == "eval":  # a run knows more of its rollouts, and completes their traces itself
            session.traces.evaluated((rollout.item_id for rollout, _, _ in played), results)
        failures = [failure for _, _, failure in played if failure is not None]
        all_items = [item for _, item, _ in played]
        output = EvaluationRunOutput(
            workflow_interrupted=bool(failures),
            eval_input=EvalInput(eval_input_items=all_items),
            evaluation_results=results,
            failures=failures,
            rollouts=[rollout for rollout, _, _ in played],
            usage_stats=usage_of(all_items),
            judge_usage=kept.judge_usage(),
        )
        if self.config.write_output:
            output = write_reports(output, self.config, session.config, dataset, job_id)
        await _conclude(callbacks, output, self.config, session.config)
        return output


async def _announce(
    callbacks: EvalCallbackManager,
    config: Config,
    dataset: DatasetBaseConfig,
    items: list[EvalInputItem],
    job_id: str | None,
) -> None:
    """Tell the callbacks what will be played."""
    await callbacks.call("on_dataset_loaded", dataset_name=Path(str(dataset.file_path)).stem, items=items)
    await callbacks.call(
        "on_eval_started",
        workflow_alias=config.workflow.name or config.workflow.static_type() or "",
        eval_input=EvalInput(eval_input_items=items),
        config=config,
        job_id=job_id,
    )


async def _conclude(
    callbacks: EvalCallbackManager, output: EvaluationRunOutput, run: EvaluationRunConfig, config: Config
) -> None:
    """Tell the callbacks the results; the reports are written."""
    if not callbacks.has_callbacks:
        return
    results, report = output.evaluation_results, output.workflow_output_file
    await callbacks.call("a_on_export_flush")
    await callbacks.call(
        "on_eval_summary", usage_stats=output.usage_stats, evaluation_results=results, profiler_results=None
    )
    result = build_eval_result(
        eval_input_items=output.eval_input.eval_input_items,
        evaluation_results=results,
        metric_scores={name: result.average_score for name, result in results if is_score(result.average_score)},
        usage_stats=output.usage_stats,
        workflow_output_json=None if report is None else report.read_text("utf-8"),
        run_config=run,
        effective_config=config,
        output_dir=None if report is None else report.parent,
    )
    await callbacks.call("on_eval_complete", result)


def answer_path(text: str) -> JsonPath | None:
    """The parsed path; None for the whole output."""
    try:
        return None if text == WHOLE else compile_path(text)
    except ValueError as error:
        raise EvaluationError(f"result_json_path: {error}", hint="For example `$.answer`.") from error


Played = tuple[Rollout, EvalInputItem, RolloutFailure | None]


async def _play_all(
    session: WorkflowSession,
    items: Sequence[EvalInputItem],
    kept: PassKeeper,
    path: JsonPath | None,
    callbacks: EvalCallbackManager,
) -> list[Played]:
    """One rollout per item, with the concurrency of the session; a cancellation ends all of them."""
    number = kept.number

    async def play(item: EvalInputItem) -> Played:
        if (rollout := kept.rollout(item)) is None:
            seed = session.seed_of(item.id, number)
            rollout = await session.run(item, seed=seed, generation=number)
            kept.keep_rollout(rollout)
        else:
            session.ended(rollout)
        answered, failure = played(item, rollout, path)
        if failure is None and callbacks.has_callbacks:
            [usage] = usage_of([answered]).usage_stats_items.values()
            await callbacks.call("on_prediction", item=answered, output=answered.output_obj)
            await callbacks.call("a_on_usage_stats", item=answered, usage_stats_item=usage)
        return rollout, answered, failure

    async with first_error(), asyncio.TaskGroup() as tasks:
        rollouts = [tasks.create_task(play(item), name=f"rollout {item.id}") for item in items]
    return [rollout.result() for rollout in rollouts]


def played(item: EvalInputItem, rollout: Rollout, path: JsonPath | None) -> tuple[EvalInputItem, RolloutFailure | None]:
    """The item with its answer and steps; an output without a value at the path is a failure too."""
    failure, answer = rollout.error, None
    if failure is None:
        try:
            answer = answer_of(rollout.output, path)
        except LookupError as error:
            message = f"result_json_path '{path}': {error}"
            failure = RolloutFailure(
                item_id=rollout.item_id,
                generation=rollout.generation,
                kind="raised",
                type=type(error).__name__,
                message=message,
            )
    return item.copy_with_updates(output_obj=answer, trajectory=rollout.steps), failure


async def _score_all(
    evaluators: Mapping[str, EvaluatorInfo],
    items: list[EvalInputItem],
    config: EvalGeneralConfig,
    callbacks: EvalCallbackManager,
    kept: PassKeeper,
) -> list[tuple[str, EvalOutput]]:
    """Each evaluator's scores of the items that have an answer; all evaluators at the same time."""

    async def score(name: str, evaluator: EvaluatorInfo) -> EvalOutput:
        output = await score_items(name, evaluator, items, config, kept)
        await callbacks.call("a_on_evaluator_score", eval_output=output, evaluator_name=name)
        return output

    async with first_error(), asyncio.TaskGroup() as tasks:
        scored = [
            tasks.create_task(score(name, evaluator), name=f"evaluator {name}")
            for name, evaluator in evaluators.items()
        ]
    return [(name, task.result()) for name, task in zip(evaluators, scored, strict=True)]


async def score_items(
    name: str,
    evaluator: EvaluatorInfo,
    items: list[EvalInputItem],
    config: EvalGeneralConfig,
    kept: PassKeeper | None = None,
) -> EvalOutput:
    """The scores of one evaluator, within its time; if it fails, no item has a score.

    One that compares generations scores them together with those of the other passes of this context. Those that `kept`
    has are not asked for again.
    """
    keeper, together = kept or _KEEPS_NOTHING.of_pass(0), evaluator.config.compares_generations

    async def score(given: list[EvalInputItem]) -> EvalOutput:
        known = keeper.scores(name, given, together=together)
        open_examples = {item.example for item in given if str(item.id) not in known}
        rest = [item for item in given if str(item.id) not in known or (together and item.example in open_examples)]
        scoring = Scoring(config.scoring_timeout, lambda scores: keeper.keep_scores(name, scores, together=together))
        output = EvalOutput(average_score=None, eval_output_items=[])
        if rest:
            output = await scoring.output_of(evaluator.evaluate_fn, rest, at_a_time=config.max_concurrency)
        if not known:
            return output
        scores = known | {str(item.id): item for item in output.eval_output_items}
        found = [scores[str(item.id)] for item in given]
        return EvalOutput(average_score=average(found), eval_output_items=found)

    return await (compared(name, items, score) if together else score(items))
