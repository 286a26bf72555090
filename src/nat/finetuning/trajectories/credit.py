"""Credit the rewards of a rollout to the answers that are trained on. Pure.

A reward is tied to a step of the rollout: the workflow gave it (`Context.reward`, or `reward` in the metadata of a step
that ends), or the evaluator named the step or the call. It counts for the last trained answer at or before that step,
within the function that the step happened in and the functions that it called; if there is none, within its caller,
and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.finetuning import RewardFunctionConfig, Trajectory
from nat.data_models.intermediate_step import (
    REWARD,
    REWARDED_STEP,
    IntermediateStep,
    IntermediateStepState,
    TraceMetadata,
)
from nat.data_models.score import plain_score, score_problem
from nat.errors import EvaluationError
from nat.finetuning.trajectories.calls import SeenCall

StepReward = tuple[float, int]
"""The reward of one step, and the step's index in the rollout."""


def given_rewards(
    steps: Sequence[IntermediateStep], seen: Sequence[SeenCall], named: Mapping[int | str, float]
) -> list[StepReward]:
    """The step rewards of the workflow, then those that an evaluator gave by number of a call or by a step's UUID.

    Raises:
        EvaluationError: a reward is no number, or is tied to an unknown step or call.

    """

    def place(name: int | str) -> int:
        if isinstance(name, int):
            if -len(seen) <= name < len(seen):
                return seen[name].at
            raise EvaluationError(f"a reward is tied to call {name}, but the rollout made {len(seen)} calls")
        places = [at for at, step in enumerate(steps) if name == step.UUID]
        if not places:
            raise EvaluationError(f"a reward is tied to the step '{name}', which is not among those of the rollout")
        return places[-1]

    found = []
    for at, step in enumerate(steps):
        metadata = step.metadata or {}
        if isinstance(metadata, TraceMetadata):
            metadata = metadata.model_extra or {}
        if REWARD in metadata and step.payload.event_state is IntermediateStepState.END:
            rewarded = metadata.get(REWARDED_STEP)
            found.append((_number(metadata[REWARD]), at if rewarded is None else place(rewarded)))
    return found + [(_number(value), place(name)) for name, value in named.items()]


def earned(
    steps: Sequence[IntermediateStep], rewards: Sequence[StepReward], trained: Sequence[SeenCall]
) -> tuple[list[float], int]:
    """The sum of each trained answer's rewards, and the number of rewards without an answer to credit."""
    callers = {step.function_ancestry.function_id: step.function_ancestry.parent_id for step in steps}

    def lineage(at: int) -> list[str]:
        """Ids of the function that a step happened in, of its caller, and so on."""
        found: list[str] = []
        function: str | None = steps[at].function_ancestry.function_id
        while function is not None and function not in found:
            found.append(function)
            function = callers.get(function)
        return found

    lineages = [lineage(call.at) for call in trained]
    sums, uncredited = [0.0] * len(trained), 0
    for value, at in rewards:
        before = [number for number, call in enumerate(trained) if call.at <= at]
        if not before:
            uncredited += 1
            continue
        inside = (number for function in lineage(at) for number in reversed(before) if function in lineages[number])
        sums[next(inside, before[-1])] += value
    return sums, uncredited


def credited(
    steps: Sequence[IntermediateStep],
    seen: Sequence[SeenCall],
    trained: Sequence[SeenCall],
    *,
    score: EvalOutputItem,
    reward: float,
    config: RewardFunctionConfig | None,
) -> tuple[Sequence[SeenCall], dict[str, int]]:
    """The trained calls with what their answers earned, and counts of step rewards; as they are without `credit`.

    The reward is credited to the last of them, unless the evaluator gave step rewards.

    Raises:
        EvaluationError: a reward is no number, or is tied to an unknown step or call.

    """
    if config is None or config.credit == "outcome":
        return trained, {}
    given = given_rewards(steps, seen, score.step_rewards or {})
    rewards, uncredited = earned(steps, given, trained)
    if score.step_rewards is None:
        rewards[-1] += reward
    values = [*rewards]
    if config.credit == "return_to_go":  # G_k = r_k + gamma · G_(k+1)
        for place in reversed(range(len(values) - 1)):
            values[place] += config.gamma * values[place + 1]
    calls = [replace(call, reward=own, value=value) for call, own, value in zip(trained, rewards, values, strict=True)]
    return calls, {"step_rewards": len(given), "uncredited_rewards": uncredited}


def credit_warnings(config: RewardFunctionConfig | None, trajectories: Sequence[Trajectory]) -> list[str]:
    """Why rewards of steps do not count, in whole sentences."""
    if config is None or config.credit == "outcome" or not trajectories:
        return []
    facts = [trajectory.metadata or {} for trajectory in trajectories]
    found = []
    if not any(fact.get("step_rewards") for fact in facts) and config.gamma == 1:
        found.append(
            f"finetuning.reward_function.credit is {config.credit}, but no step of {len(facts)} rollouts has a reward: "
            "give some with Context.get().reward(…), or `step_rewards` in what the evaluator returns."
        )
    if lost := sum(fact.get("uncredited_rewards", 0) for fact in facts):
        found.append(
            f"{lost} rewards of steps in {len(facts)} rollouts have no effect: no trained answer came before them."
        )
    return found


def _number(value: object) -> float:
    if problem := score_problem(value, "the reward of a step"):
        raise EvaluationError(problem)
    return float(plain_score(value))
