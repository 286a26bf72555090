"""A client of openpipe-art 0.5.17 trains through `RemoteBackend` of nvidia-nat-openpipe-art in both ways."""

import asyncio

import art
import game
import lesson
from nat.plugins.openpipe.remote_backend import RemoteBackend


async def main() -> None:
    """Train half of the rounds with `model.train` and the others with `backend.train`."""
    told = game.settings()
    backend = RemoteBackend(told["control_url"])
    model = art.TrainableModel(
        name=told["name"], project="interop", base_model=told["base_model"], base_path=told["folder"]
    )
    await model.register(backend)

    async def train(number: int, groups: list[art.TrajectoryGroup]) -> int:
        if number < game.ROUNDS // 2:
            await model.train(groups, config=art.TrainConfig(learning_rate=game.LEARNING_RATE))
            return await model.get_step()
        result = await backend.train(model, groups, learning_rate=game.LEARNING_RATE)
        await model.log(groups, split="train", metrics=result.metrics, step=result.step)
        return result.step

    # This client always reports name@0; workflows use the plain name, which means the newest weights.
    learnt = await lesson.teach(model, train, newest=model.name, first=model.get_inference_name())
    await model.log(learnt.groups, split="val")
    await model.delete_checkpoints()
    await backend.close()
    game.report(probabilities=learnt.probabilities, steps=learnt.steps, at_first=learnt.at_first)


asyncio.run(main())
