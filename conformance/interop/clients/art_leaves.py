"""An openpipe-art client up to 0.5.7 disconnects during a training call, then trains again."""

import asyncio

import art
import game

TOKENS, SAMPLES, COPIES = 200, 8, 20
"""Enough trajectories for many gradient steps; the client waits only for the first."""


async def main() -> None:
    """Disconnect during a call, check the server, and train again."""
    told = game.settings()
    backend = art.Backend(base_url=told["control_url"])
    model = art.TrainableModel(name=told["name"], project="interop", base_model=told["base_model"])
    await model.register(backend)
    client, name, prompt = model.openai_client(), model.get_inference_name(), game.PROMPTS[0]
    wanted = await game.wanted_tokens(client, name)
    before = await game.probability(client, name, wanted)

    async def rollout(seed: int) -> art.Trajectory:
        choice = await game.answer(client, name, prompt, seed, tokens=TOKENS)
        return art.Trajectory(messages_and_choices=[*game.messages_of(prompt), choice], reward=float(seed % 2))

    groups = [art.TrajectoryGroup(await asyncio.gather(*map(rollout, range(SAMPLES))))] * COPIES
    training = backend._train_model(model, groups, art.TrainConfig(learning_rate=game.LEARNING_RATE), {})
    await anext(training)
    asked = asyncio.create_task(game.probability(client, name, wanted))
    during = await model.get_step()
    await training.aclose()
    after, step = await asked, await model.get_step()
    await model.train(groups[:1], config=art.TrainConfig(learning_rate=game.LEARNING_RATE))
    game.report(before=before, during=during, after=after, step=step, step_at_last=await model.get_step())


asyncio.run(main())
