"""One finished rollout → its record, and its trajectory if it can be trained on. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nat.data_models.evaluate_runtime import RolloutFacts
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.finetuning import Trajectory
from nat.data_models.rollout_failure import RolloutFailure
from nat.eval.scoring import is_number
from nat.finetuning.trajectories.calls import SeenCall, calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import Conversation, conversations
from nat.finetuning.trajectories.rows import Rows, rows_of_calls
from nat.finetuning.trajectories.select import Selection, select
from nat.runs.records import LeftOutCause, RolloutRecord

_FAILURES = {"raised": LeftOutCause.FAILED, "timeout": LeftOutCause.TIMED_OUT}
NOT_SCORED = "the evaluator gave no score"


@dataclass(frozen=True)
class Target:
    """Whose LLM calls are trained on."""

    functions: Sequence[str]
    model: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one rollout; `trajectory` is None exactly if `record.left_out` says why."""

    record: RolloutRecord
    trajectory: Trajectory | None = None


def failed(item: EvalInputItem, failure: RolloutFailure, generation: int) -> RolloutRecord:
    """A rollout that raised or ran into its deadline, with what it did until then."""
    record = _record(item, generation, calls_of(item.trajectory))
    return record.model_copy(update={"left_out": _FAILURES[failure.kind], "error": str(failure)})


def held_out(item: EvalInputItem, score: EvalOutputItem | None) -> RolloutRecord:
    """A held-out rollout: measured, not trained on."""
    if score is None or not is_number(score.score):
        return unscored(item, 0, (score and score.error) or NOT_SCORED)
    record = _record(item, 0, calls_of(item.trajectory))
    return record.model_copy(update={"reward": float(score.score), "reasoning": score.reasoning})


def unscored(item: EvalInputItem, generation: int, error: str) -> RolloutRecord:
    """A rollout without a reward is left out; no number stands in for it."""
    record = _record(item, generation, calls_of(item.trajectory))
    return record.model_copy(update={"left_out": LeftOutCause.NO_SCORE, "error": error})


def scored(
    item: EvalInputItem,
    score: EvalOutputItem,
    reward: float,
    *,
    generation: int,
    target: Target,
    metadata: dict[str, Any],
) -> Outcome:
    """The trajectory of the target's calls; `metadata` (run id, epoch …) is added to the trajectory's own."""
    seen = calls_of(item.trajectory)
    if not math.isfinite(reward):
        return Outcome(unscored(item, generation, f"the reward is {reward}, which is not a number"))
    record = _record(item, generation, seen).model_copy(update={"reward": reward, "reasoning": score.reasoning})
    chosen = select(seen, target_functions=target.functions, target_model=target.model)
    if chosen.cause is not None:
        return Outcome(record.model_copy(update={"left_out": chosen.cause}))
    threads = conversations(chosen.calls)
    rows = rows_of_calls([s.call for s in chosen.calls])
    details = _details(chosen, rows)
    trajectory = Trajectory(
        episode=episode(threads),
        reward=reward,
        metadata=metadata
        | details
        | {"id": record.example_id, "generation": generation, "reasoning": score.reasoning, "rows": len(rows.rows)},
    )
    return Outcome(record.model_copy(update=_of_tokens(threads, rows, details)), trajectory)


def told(records: Iterable[RolloutRecord], facts: Iterable[RolloutFacts]) -> list[RolloutRecord]:
    """The records of one pass, with the seed that each rollout can be played again from, and its time."""
    of_item = {fact.item_id: {"seed": fact.seed, "seconds": fact.seconds} for fact in facts}
    return [record.model_copy(update=of_item.get(record.example_id, {})) for record in records]


def _record(item: EvalInputItem, generation: int, seen: Sequence[SeenCall]) -> RolloutRecord:
    names = [name for s in seen for name in {s.call.llm_name, s.call.model} if name]
    return RolloutRecord(
        example_id=str(item.id),
        generation=generation,
        output=None if item.output_obj is None else str(item.output_obj),
        num_calls=len(seen),
        prompt_tokens=sum(len(s.call.prompt_token_ids or ()) for s in seen),
        completion_tokens=sum(len(s.call.token_ids or s.call.logprobs or ()) for s in seen),
        functions=dict(Counter(s.function for s in seen)),
        models=dict(Counter(names)),
        messages=[message for thread in conversations(seen) for message in thread.messages],
    )


def _details(chosen: Selection, rows: Rows) -> dict[str, Any]:
    versions = [s.call.policy_version for s in chosen.calls]
    return {
        "trained_tokens": sum(row.num_sampled for row in rows.rows),
        "broken_prefixes": rows.broken_prefixes,
        "calls": len(chosen.calls),
        "calls_without_logprobs": chosen.without_logprobs,
        "truncated": any(s.call.finish_reason == "length" for s in chosen.calls),
        "policy_version": versions[-1],
    }


def _of_tokens(threads: Sequence[Conversation], rows: Rows, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages": [message for thread in threads for message in thread.messages],
        "rows": list(rows.rows),
        "broken_prefixes": rows.broken_prefixes,
        "truncated": details["truncated"],
        "policy_version": details["policy_version"],
    }
