"""One finished rollout → its record, and its trajectory if it can be trained on. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nat.builder.tool import as_text
from nat.capture.steps import failed_calls
from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.finetuning import RewardFunctionConfig, Trajectory
from nat.data_models.llm_usage import usage_of_steps
from nat.data_models.rollout_failure import NO_SCORE
from nat.data_models.score import is_score, score_problem
from nat.errors import EvaluationError
from nat.finetuning.trajectories.calls import Target, calls_of
from nat.finetuning.trajectories.credit import credited
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import Thread, conversations, conversations_and_rows
from nat.finetuning.trajectories.rows import broken_by
from nat.runs.rollouts import LeftOutCause, RolloutRecord

Facts = dict[str, Any]
"""Fields of a rollout's record."""

_FAILURES = {"raised": LeftOutCause.FAILED, "timeout": LeftOutCause.TIMED_OUT}


def played(
    output: EvaluationRunOutput, reward: RewardFunctionConfig | None
) -> Iterator[tuple[EvalInputItem, EvalOutputItem | None, Facts]]:
    """Each rollout of a pass, its score, and what else its record says; without a score, the facts have the cause.

    Raises:
        EvaluationError: the reward's evaluator is missing.

    """
    scores, facts = _scores_of(output, reward), facts_of(output, reward)
    for item in output.eval_input.eval_input_items:
        own, score = facts[str(item.id)], scores.get(str(item.id))
        if "left_out" not in own and (score is None or score.score is None):
            own |= no_score(score)
        yield item, None if "left_out" in own else score, own


def no_score(score: EvalOutputItem | str | None) -> Facts:
    """The cause of a rollout without a reward, which is left out and not scored 0; of the evaluator, or a text."""
    if not isinstance(score, EvalOutputItem):
        return {"left_out": LeftOutCause.NO_SCORE, "error": score or NO_SCORE}
    error = score.error or score_problem(score.score) or NO_SCORE
    return {"left_out": LeftOutCause(score.cause), "error": error, "traceback": score.traceback}


def scored(
    item: EvalInputItem,
    score: EvalOutputItem,
    reward: float,
    *,
    generation: int,
    target: Target,
    credit: RewardFunctionConfig | None = None,
    metadata: dict[str, Any],
    facts: Facts,
) -> tuple[RolloutRecord, Trajectory | None]:
    """The record, and the trajectory of the target's calls, None exactly if the record has a cause of its absence.

    `metadata` (run id, epoch …) is added to the trajectory's own, `facts` to the record.
    """
    seen = calls_of(item.trajectory)
    chosen = target.select(seen)
    if problem := score_problem(reward, "the reward"):
        return recorded(item, generation, target, **facts | no_score(problem)), None
    if not seen and (attempts := failed_calls(item.trajectory)):
        failed = {"left_out": LeftOutCause.CALLS_FAILED, "error": str(attempts[-1])}
        return recorded(item, generation, **facts | failed), None
    raw = [s for s in chosen.calls if s.call.temperature != s.call.logprobs_temperature]
    found = facts | {
        "left_out": chosen.cause,
        "reward": reward,
        "reasoning": score.reasoning,
        "relative": score.relative,
        "untrainable_calls": _by_function((s.function, ", ".join(s.call.untrainable_by)) for s in chosen.untrainable),
        "untempered_calls": _by_function((s.function, f"temperature={s.call.temperature:g}") for s in raw),
    }
    if chosen.cause is not None:
        return recorded(item, generation, target, **found), None
    try:
        calls, counts = credited(item.trajectory, seen, chosen.calls, score=score, reward=reward, config=credit)
    except EvaluationError as error:
        return recorded(item, generation, target, **facts | no_score(str(error))), None
    threads, rows = conversations_and_rows(calls)
    causes = broken_by(threads)
    found |= {"broken_prefixes": sum(causes.values()), "broken_by": causes, "rows": rows}
    record = recorded(item, generation, target, threads, **found)
    metadata = metadata | {
        "id": record.example_id,
        "generation": generation,
        "reasoning": score.reasoning,
        "rows": len(rows),
        "trained_tokens": sum(row.num_sampled for row in rows),
        "broken_prefixes": record.broken_prefixes,
        "broken_by": causes,
        "conversations": [
            each.model_dump(mode="json", include={"began", "parent", "shared"})
            | {"messages": len(each.messages), "calls": len(each.answers)}
            for each in threads
        ],
        "calls": len(chosen.calls),
        "calls_without_logprobs": chosen.without_logprobs,
        "truncated": record.truncated,
        "policy_versions": record.policy_versions,
        **({"scores_beside": record.scores_beside} if record.scores_beside else {}),
        **counts,
    }
    shaped = [call.value for thread in threads for call in thread.sampled.values() if call.value is not None]
    items = episode(threads)
    return record, Trajectory(episode=items, reward=reward, shaped_rewards=shaped or None, metadata=metadata)


def _scores_of(output: EvaluationRunOutput, reward: RewardFunctionConfig | None) -> dict[str, EvalOutputItem]:
    """The scores by the reward's evaluator, by item."""
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


def facts_of(output: EvaluationRunOutput, reward: RewardFunctionConfig | None) -> dict[str, Facts]:
    """Of each rollout of a pass by its item: seed, seconds, usage, scores beside the reward, and why it failed."""
    share = 1 / (len(output.rollouts) or 1)
    judged = {name: used * share for name, used in output.judge_usage.items()}
    items = output.eval_input.eval_input_items
    facts: dict[str, Facts] = {str(item.id): {"scores_beside": {}} for item in items}
    steps = {str(item.id): item.trajectory for item in items}
    for fact in output.rollouts:
        own = {"seed": fact.seed, "seconds": fact.seconds, "usage": usage_of_steps(steps[fact.item_id])}
        facts[fact.item_id] |= own | {"judge_usage": judged}
    for failure in output.failures:
        cause = {"left_out": _FAILURES[failure.kind], "error": str(failure), "traceback": failure.traceback}
        facts[failure.item_id] |= cause
    for name, result in output.evaluation_results:
        for score in result.eval_output_items:
            if (reward is None or name != reward.name) and is_score(score.score) and str(score.id) in facts:
                facts[str(score.id)]["scores_beside"][name] = float(score.score)
    return facts


def recorded(
    item: EvalInputItem,
    generation: int,
    target: Target | None = None,
    threads: Sequence[Thread] | None = None,
    **facts: Any,
) -> RolloutRecord:
    """The record of a rollout; `facts` are further fields of it, and `threads` the conversations that are trained."""
    seen = calls_of(item.trajectory)
    chosen = seen if target is None else target.select(seen).of_target
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
        conversations=list(conversations(seen) if threads is None else threads),
        truncated=any(s.call.finish_reason == "length" for s in chosen),
        lost_calls=dict(Counter(lost)),
        policy_versions=dict(Counter(s.call.policy_version for s in chosen if s.call.policy_version is not None)),
        **facts,
    )


def _by_function(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (function, how), count in Counter(pairs).items():
        found.setdefault(function, {})[how] = count
    return found
