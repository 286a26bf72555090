"""Credit the rewards of a rollout to the answers that are trained on. Pure.

A reward is tied to a step of the rollout: the workflow gave it (`Context.reward`, or `reward` in the metadata of a step
that ends), or the evaluator named the step or the call. It counts for the last trained answer at or before that step,
within the function that the step happened in and the functions that it called; if there is none, within its caller,
and so on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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


@dataclass(frozen=True)
class Credited:
    """The rewards and the returns of the trained answers, in the order in which the answers came."""

    rewards: list[float]
    returns: list[float]
    num_steps: int
    """Rewards that were tied to a step."""
    uncredited: int
    """Step rewards without an earlier answer to credit."""


@dataclass(frozen=True)
class Steps:
    """The steps of a rollout and its calls."""

    steps: Sequence[IntermediateStep]
    calls: Sequence[SeenCall]
    """All calls of the rollout, trained on or not."""

    def from_workflow(self) -> Iterator[StepReward]:
        """The step rewards that the workflow gave; EvaluationError if one is no number, or its step is unknown."""
        for at, step in enumerate(self.steps):
            metadata = step.metadata or {}
            if isinstance(metadata, TraceMetadata):
                metadata = metadata.model_extra or {}
            if REWARD in metadata and step.payload.event_state is IntermediateStepState.END:
                named = metadata.get(REWARDED_STEP)
                yield _number(metadata[REWARD]), at if named is None else self._place(named)

    def from_evaluator(self, rewards: Mapping[int | str, float]) -> Iterator[StepReward]:
        """The step rewards that an evaluator gave, by number of a call or by a step's UUID; errors as above."""
        for name, value in rewards.items():
            yield _number(value), self._place(name)

    def credit(self, rewards: Sequence[StepReward], trained: Sequence[SeenCall]) -> tuple[list[float], int]:
        """The sum of each trained answer's rewards, and the number of rewards without an answer to credit."""
        lineages = [self._lineage(call.at) for call in trained]
        earned, uncredited = [0.0] * len(trained), 0
        for value, at in rewards:
            before = [number for number, call in enumerate(trained) if call.at <= at]
            if not before:
                uncredited += 1
                continue
            inside = (
                number for function in self._lineage(at) for number in reversed(before) if function in lineages[number]
            )
            earned[next(inside, before[-1])] += value
        return earned, uncredited

    def _place(self, name: int | str) -> int:
        if isinstance(name, int):
            if -len(self.calls) <= name < len(self.calls):
                return self.calls[name].at
            raise EvaluationError(f"a reward is tied to call {name}, but the rollout made {len(self.calls)} calls")
        places = [at for at, step in enumerate(self.steps) if name == step.UUID]
        if not places:
            raise EvaluationError(f"a reward is tied to the step '{name}', which is not among those of the rollout")
        return places[-1]

    def _lineage(self, at: int) -> list[str]:
        """Ids of the function that a step happened in, of its caller, and so on."""
        found: list[str] = []
        function: str | None = self.steps[at].function_ancestry.function_id
        while function is not None and function not in found:
            found.append(function)
            function = self._callers.get(function)
        return found

    @cached_property
    def _callers(self) -> dict[str, str | None]:
        return {s.function_ancestry.function_id: s.function_ancestry.parent_id for s in self.steps}


def credit_answers(
    steps: Sequence[IntermediateStep],
    seen: Sequence[SeenCall],
    trained: Sequence[SeenCall],
    *,
    score: EvalOutputItem,
    reward: float,
    config: RewardFunctionConfig | None,
) -> Credited | None:
    """Credit the trained answers of a rollout; None where only the reward of the rollout counts.

    The reward is credited to the last of them, unless the evaluator gave step rewards.

    Raises:
        EvaluationError: a reward is no number, or is tied to an unknown step or call.

    """
    if config is None or config.credit == "outcome":
        return None
    stream = Steps(steps, seen)
    given = list(stream.from_workflow())
    if score.step_rewards is not None:
        given += stream.from_evaluator(score.step_rewards)
    rewards, uncredited = stream.credit(given, trained)
    if score.step_rewards is None:
        rewards[-1] += reward
    return Credited(rewards, returns(rewards, config), len(given), uncredited)


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


def returns(rewards: Sequence[float], config: RewardFunctionConfig) -> list[float]:
    """The return of each answer: its own rewards, or G_k = r_k + gamma · G_(k+1)."""
    if config.credit == "per_step":
        return list(rewards)
    found: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + config.gamma * following
        found.append(following)
    return found[::-1]


def _number(value: object) -> float:
    if problem := score_problem(value, "the reward of a step"):
        raise EvaluationError(problem)
    return float(plain_score(value))
