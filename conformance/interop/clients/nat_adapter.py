"""The adapter of the upstream plug-in nvidia-nat-openpipe-art trains on real answers of our server.

The server gets the configured learning rate only in the model's internal config; the training call has a constant
one.
"""

import asyncio

import game
from openai import AsyncOpenAI

from nat.data_models.finetuning import (
    EpisodeItem,
    EpisodeItemRole,
    FinetuneConfig,
    Trajectory,
    TrajectoryCollection,
)
from nat.plugins.openpipe.config import ARTBackendConfig, ARTTrainerAdapterConfig
from nat.plugins.openpipe.trainer_adapter import ARTTrainerAdapter

POLL_S = 0.1


async def main() -> None:
    """Initialise; some rounds of gather, submit, wait; then one with a minimal configuration."""
    told = game.settings()
    where = {"ip": told["host"], "port": int(told["port"]), "name": told["name"]}
    backend = ARTBackendConfig(
        **where,
        project="interop",
        base_model=told["base_model"],
        api_key=told["api_key"],
        delete_old_checkpoints=True,
        init_args={"max_seq_length": 512},
    )
    training = {"learning_rate": game.LEARNING_RATE, "beta": 0.0}
    adapter = await _initialized(ARTTrainerAdapterConfig(backend=backend, training=training))
    client = AsyncOpenAI(base_url=told["inference_url"], api_key=told["api_key"])
    wanted = await game.wanted_tokens(client, told["name"])
    probabilities = [await game.probability(client, told["name"], wanted)]
    steps = [await adapter.model.get_step()]
    statuses = []
    for epoch in range(game.ROUNDS):
        statuses.append(await _train(adapter, await _gather(client, told["name"], wanted, epoch)))
        steps.append(await adapter.model.get_step())
        probabilities.append(await game.probability(client, told["name"], wanted))
    # Project, base model and all arguments are left to the plug-in, which sends its defaults and nulls.
    where["name"] += "-minimal"
    minimal = await _initialized(ARTTrainerAdapterConfig(backend=ARTBackendConfig(**where)))
    statuses.append(await _train(minimal, await _gather(client, where["name"], wanted, epoch=0)))
    game.report(probabilities=probabilities, steps=steps, statuses=statuses)


async def _initialized(config: ARTTrainerAdapterConfig) -> ARTTrainerAdapter:
    adapter = ARTTrainerAdapter(config)
    await adapter.initialize(FinetuneConfig.model_construct())
    return adapter


async def _train(adapter: ARTTrainerAdapter, collection: TrajectoryCollection) -> str:
    reference = await adapter.submit(collection)
    status = await adapter.wait_until_complete(reference, poll_interval=POLL_S)
    return f"{status.status.value}: {status.message}"


async def _gather(client: AsyncOpenAI, name: str, wanted: dict[str, str], epoch: int) -> TrajectoryCollection:
    groups = [
        [
            _trajectory(prompt, await game.answer(client, name, prompt, game.seed_of(epoch, sample)), token)
            for sample in range(game.SAMPLES)
        ]
        for prompt, token in wanted.items()
    ]
    return TrajectoryCollection(trajectories=groups, run_id=f"epoch{epoch}")


def _trajectory(prompt: str, choice: object, token: str) -> Trajectory:
    asked = EpisodeItem(role=EpisodeItemRole.USER, content=prompt)
    said = EpisodeItem(role=EpisodeItemRole.ASSISTANT, content=choice.message.content, logprobs=choice.logprobs)
    return Trajectory(episode=[asked, said], reward=game.reward_of(choice, token))


asyncio.run(main())
