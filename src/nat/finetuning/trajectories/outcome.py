"""One finished rollout → its record, and its trajectory if it can be trained on. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from nat.builder.tool import as_text
from nat.capture.steps import failed_calls
from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.finetuning import RewardFunctionConfig, Trajectory
from nat.data_models.llm_usage import usage_of_steps
from nat.data_models.rollout_failure import NO_SCORE, RolloutFailure
from nat.data_models.score import is_score, score_problem
from nat.errors import EvaluationError
from nat.finetuning.trajectories.calls import SeenCall, Selection, Target, calls_of
from nat.finetuning.trajectories.credit import credit_answers
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import ConversationGraph, Thread, conversations
from nat.finetuning.trajectories.rows import broken_by
from nat.runs.rollouts import LeftOutCause, RolloutRecord
from nat.wire.training import TrainingRow

_FAILURES = {"raised": LeftOutCause.FAILED, "timeout": LeftOutCause.TIMED_OUT}


def failed(
    item: EvalInputItem, failure: RolloutFailure, generation: int, target: Target | None = None
) -> RolloutRecord:
    """The record of a rollout that raised or timed out, with its calls until then."""
    cause = {"left_out": _FAILURES[failure.kind], "error": str(failure), "traceback": failure.traceback}
    return recorded(item, generation, target, **cause)


def held_out(item: EvalInputItem, score: EvalOutputItem | None) -> RolloutRecord:
    """The record of a held-out rollout, which is not trained on."""
    if score is None or score_problem(score.score):
        return unscored_by(item, 0, score)
    return recorded(item, 0, reward=float(score.score), reasoning=score.reasoning, comparison=score.comparison)


def unscored_by(
    item: EvalInputItem, generation: int, score: EvalOutputItem | None, target: Target | None = None
) -> RolloutRecord:
    """The record of a rollout without a usable score; with the evaluator's error, if it gave one."""
    if score is None:
        return unscored(item, generation, NO_SCORE, target)
    error = score.error or score_problem(score.score) or NO_SCORE
    cause = {"left_out": LeftOutCause(score.cause), "error": error, "traceback": score.traceback}
    return recorded(item, generation, target, **cause)


def unscored(
    item: EvalInputItem, generation: int, error: str, target: Target | None = None, *, traceback: str | None = None
) -> RolloutRecord:
    """The record of a rollout without a reward: it is left out, not scored 0."""
    return recorded(item, generation, target, left_out=LeftOutCause.NO_SCORE, error=error, traceback=traceback)


def scored(
    item: EvalInputItem,
    score: EvalOutputItem,
    reward: float,
    *,
    generation: int,
    target: Target,
    credit: RewardFunctionConfig | None = None,
    metadata: dict[str, Any],
) -> tuple[RolloutRecord, Trajectory | None]:
    """The record, and the trajectory of the target's calls, None exactly if the record has a cause of its absence.

    `metadata` (run id, epoch …) is added to the trajectory's own.
    """
    seen = calls_of(item.trajectory)
    if problem := score_problem(reward, "the reward"):
        return unscored(item, generation, problem, target), None
    if not seen and (attempts := failed_calls(item.trajectory)):
        return recorded(item, generation, left_out=LeftOutCause.CALLS_FAILED, error=str(attempts[-1])), None
    chosen = target.select(seen)
    facts = {"reward": reward, "reasoning": score.reasoning, "comparison": score.comparison} | _sampled(chosen)
    if chosen.cause is not None:
        threads = conversations(seen)
        return _record(item, generation, seen, threads, chosen.of_target, left_out=chosen.cause, **facts), None
    try:
        credited = credit_answers(item.trajectory, seen, chosen.calls, score=score, reward=reward, config=credit)
    except EvaluationError as error:
        return unscored(item, generation, str(error), target), None
    graph = ConversationGraph(chosen.calls, None if credited is None else credited.returns)
    threads, rows, causes = graph.conversations, graph.rows, broken_by(graph.conversations)
    facts |= {"broken_prefixes": sum(causes.values()), "broken_by": causes}
    record = _record(item, generation, seen, threads, chosen.of_target, rows=rows, **facts)
    details = _details(record, chosen)
    earned: dict[int, float] = {}
    shaped_rewards = None
    if credited is not None:
        details |= {"step_rewards": credited.num_steps, "uncredited_rewards": credited.uncredited}
        places = [call.at for call in chosen.calls]
        earned = dict(zip(places, credited.rewards, strict=True))
        by_call = dict(zip(places, credited.returns, strict=True))
        shaped_rewards = [by_call[call.at] for thread in threads for call in thread.sampled.values()]
    named = {"id": record.example_id, "generation": generation, "reasoning": score.reasoning, "rows": len(rows)}
    trajectory = Trajectory(
        episode=episode(threads, earned),
        reward=reward,
        shaped_rewards=shaped_rewards,
        metadata=metadata | details | named,
    )
    return record, trajectory


def failed_as_scored(
    record: RolloutRecord, item: EvalInputItem, score: float, **given: Any
) -> tuple[RolloutRecord, Trajectory | None]:
    """A failed rollout with the score of failures, as `scored` gives it; left out still if no call can be trained."""
    found, trajectory = scored(item, EvalOutputItem(id=item.id, score=score, reasoning=None), score, **given)
    if trajectory is None:
        return record, None
    return found.model_copy(update={"error": record.error, "traceback": record.traceback}), trajectory


def scores_of(output: EvaluationRunOutput, reward: RewardFunctionConfig | None) -> dict[str, EvalOutputItem]:
    """The scores by the reward's evaluator, by item; raises `EvaluationError` if items were played without it."""
    result = None if reward is None else output.results_of(reward.name)
    if not [*output.eval_input.eval_input_items]:
        return {}
    if result is None:
        named, seen = (
            [name for name, _ in output.evaluation_results],
            "not set" if reward is None else f"'{reward.name}'",
        )
        raise EvaluationError(
            f"finetuning.reward_function.name is {seen}, but the evaluators that gave scores are: {named or 'none'}",
            hint="name one of `eval.evaluators`, which a validation's own config must have, too",
        )
    return {str(score.id): score for score in result.eval_output_items}


def with_facts(
    records: Iterable[RolloutRecord], output: EvaluationRunOutput, reward: RewardFunctionConfig | None
) -> list[RolloutRecord]:
    """The records of one pass, with seed, durations, scores beside the reward, and usage of each rollout."""
    share = 1 / (len(output.rollouts) or 1)
    judged = {"judge_usage": {name: used * share for name, used in output.judge_usage.items()}}
    of_item: dict[str, dict[str, Any]] = {
        fact.item_id: {"seed": fact.seed, "seconds": fact.seconds, "scores_beside": {}, **judged}
        for fact in output.rollouts
    }
    for item in output.eval_input.eval_input_items:
        if str(item.id) in of_item:
            of_item[str(item.id)]["usage"] = usage_of_steps(item.trajectory)
    for name, result in output.evaluation_results:
        for score in result.eval_output_items:
            own = of_item.get(str(score.id), {"scores_beside": {}})
            if (reward is None or name != reward.name) and is_score(score.score):
                own["scores_beside"][name] = float(score.score)
    return [record.model_copy(update=of_item.get(record.example_id, {})) for record in records]


def recorded(item: EvalInputItem, generation: int, target: Target | None = None, **facts: Any) -> RolloutRecord:
    """The record of a rollout without rows to train on; `facts` are further fields of it."""
    seen = calls_of(item.trajectory)
    chosen = seen if target is None else target.select(seen).of_target
    return _record(item, generation, seen, conversations(seen), chosen, **facts)


def _record(
    item: EvalInputItem,
    generation: int,
    seen: Sequence[SeenCall],
    threads: Sequence[Thread],
    chosen: Sequence[SeenCall],
    *,
    rows: Sequence[TrainingRow] = (),
    **facts: Any,
) -> RolloutRecord:
    offered = [thread.tools for thread in threads]
    tools = [each for place, each in enumerate(offered) if each and each not in offered[:place]]
    names = [name for s in seen for name in {s.call.llm_name, s.call.model, s.call.requested_model} if name]
    lost = [
        "cut_off" if (s.call.lost_call, s.call.finish_reason) == ("unclosed", "length") else s.call.lost_call
        for s in chosen
        if s.call.lost_call
    ]  # one that the token limit cut off is no other mistake
    return RolloutRecord(
        example_id=str(item.id),
        generation=generation,
        question=as_text(item.input_obj),
        expected=as_text(item.expected_output_obj),
        output=None if item.output_obj is None else str(item.output_obj),
        num_calls=len(seen),
        num_failed_calls=len(failed_calls(item.trajectory)),
        prompt_tokens=sum(len(s.call.prompt_token_ids or ()) for s in seen),
        completion_tokens=sum(len(s.call.token_ids or s.call.logprobs or ()) for s in seen),
        functions=dict(Counter(s.function for s in seen)),
        models=dict(Counter(names)),
        messages=[message for thread in threads for message in thread.messages],
        conversations=[thread.record(rows, tools) for thread in threads],
        tools=tools,
        truncated=any(s.call.finish_reason == "length" for s in chosen),
        lost_calls=dict(Counter(lost)),
        policy_versions=dict(Counter(s.call.policy_version for s in chosen if s.call.policy_version is not None)),
        rows=list(rows),
        **facts,
    )


def _sampled(chosen: Selection) -> dict[str, dict[str, dict[str, int]]]:
    """The calls whose sampling deserves a warning, by function."""
    raw = [s for s in chosen.calls if s.call.temperature != s.call.logprobs_temperature]
    return {
        "untrainable_calls": _by_function((s.function, ", ".join(s.call.untrainable_by)) for s in chosen.untrainable),
        "untempered_calls": _by_function((s.function, f"temperature={s.call.temperature:g}") for s in raw),
    }


def _by_function(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (function, how), count in Counter(pairs).items():
        found.setdefault(function, {})[how] = count
    return found


def _details(record: RolloutRecord, chosen: Selection) -> dict[str, Any]:
    return {
        "trained_tokens": sum(row.num_sampled for row in record.rows),
        "broken_prefixes": record.broken_prefixes,
        "broken_by": record.broken_by,
        "conversations": [
            each.model_dump(mode="json", exclude={"tools", "answers"}) | {"calls": len(each.answers)}
            for each in record.conversations
        ],
        "calls": len(chosen.calls),
        "calls_without_logprobs": chosen.without_logprobs,
        "truncated": record.truncated,
        "policy_versions": record.policy_versions,
    }
