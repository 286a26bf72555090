"""What each answer of a rollout is compared by. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.finetuning import RewardFunctionConfig, Trajectory
from nat.data_models.intermediate_step import IntermediateStep
from nat.finetuning.trajectories.calls import SeenCall
from nat.finetuning.trajectories.credit import Credited, Steps


@dataclass(frozen=True)
class Judged:
    """What each trained answer earned, and what it is compared by; one number each."""

    credited: Credited
    returns: list[float]

    @property
    def details(self) -> dict[str, Any]:
        return {"step_rewards": self.credited.num_steps, "uncredited_rewards": self.credited.uncredited}

    def rewards_by_call(self, trained: Sequence[SeenCall]) -> dict[int, float]:
        """By the call's place among the steps; likewise the returns."""
        return {call.at: reward for call, reward in zip(trained, self.credited.rewards, strict=True)}

    def returns_by_call(self, trained: Sequence[SeenCall]) -> dict[int, float]:
        return {call.at: value for call, value in zip(trained, self.returns, strict=True)}


def judge(
    steps: Sequence[IntermediateStep],
    seen: Sequence[SeenCall],
    trained: Sequence[SeenCall],
    *,
    score: EvalOutputItem,
    reward: float,
    config: RewardFunctionConfig | None,
) -> Judged | None:
    """What the trained answers of a rollout are worth; None where the reward of the rollout is all that counts.

    The reward belongs to the last of them, unless the evaluator said itself what which step was worth.

    Raises:
        EvaluationError: a reward is no number, or is tied to a step or a call that is not there.

    """
    if config is None or config.credit == "outcome":
        return None
    stream = Steps(steps, seen)
    given = list(stream.pushed())
    if score.step_rewards is not None:
        given += stream.named(score.step_rewards)
    credited = stream.credit(given, trained)
    if score.step_rewards is None:
        credited.rewards[-1] += reward
    return Judged(credited, returns(credited.rewards, config))


def credit_warnings(config: RewardFunctionConfig | None, trajectories: Sequence[Trajectory]) -> list[str]:
    """What keeps rewards of steps from counting, in whole sentences."""
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
            f"{lost} rewards of steps in {len(facts)} rollouts count for nothing: no answer that is trained on came "
            "before them."
        )
    return found


def returns(rewards: Sequence[float], config: RewardFunctionConfig) -> list[float]:
    """What each answer is compared by: its own rewards, or G_k = r_k + gamma · G_(k+1)."""
    if config.credit == "per_step":
        return list(rewards)
    found: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + config.gamma * following
        found.append(following)
    return found[::-1]
