"""The training loop of clients that use `art`'s gathering: roll out, reward, train, evaluate."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import art
import game

Train = Callable[[int, list[art.TrajectoryGroup]], Awaitable[int]]
"""Trains on the groups of a round; gives the new step."""


@dataclass
class Lesson:
    """Results: the probability and the step before the first round and after each round."""

    probabilities: list[float]
    steps: list[int]
    at_first: float
    """The probability under the weights of step 0 after all rounds."""
    groups: list[art.TrajectoryGroup]
    """The rollouts of the last round."""


async def teach(model: art.TrainableModel, train: Train, *, newest: str, first: str) -> Lesson:
    """Play all rounds; `newest` and `first` are the inference names of the newest weights and of those of step 0."""
    client = model.openai_client()
    wanted = await game.wanted_tokens(client, newest)

    async def rollout(prompt: str, seed: int) -> art.Trajectory:
        if "exchanges" in art.Trajectory.model_fields and seed % 2:  # from 0.5.20 on, calls can be captured, too
            with art.Trajectory() as captured:
                choice = await game.answer(client, newest, prompt, seed)
            captured.reward = game.reward_of(choice, wanted[prompt])
            return captured
        choice = await game.answer(client, newest, prompt, seed)
        reward = game.reward_of(choice, wanted[prompt])
        return art.Trajectory(messages_and_choices=[*game.messages_of(prompt), choice], reward=reward)

    probabilities, steps, groups = [await game.probability(client, newest, wanted)], [await model.get_step()], []
    for number in range(game.ROUNDS):
        groups = await art.gather_trajectory_groups(
            art.TrajectoryGroup(rollout(prompt, game.seed_of(number, sample)) for sample in range(game.SAMPLES))
            for prompt in game.PROMPTS
        )
        steps.append(await train(number, groups))
        probabilities.append(await game.probability(client, newest, wanted))
    return Lesson(probabilities, steps, await game.probability(client, first, wanted), groups)
