"""openpipe-art from 0.5.18 on, unmodified: its only remote client is `ServerlessBackend(api_key, base_url)`."""

import asyncio
import inspect

import art
import game
import lesson
from art.serverless.backend import ServerlessBackend


async def main() -> None:
    """Register, learn, then log, tidy up, delete another model and close."""
    told = game.settings()
    backend = ServerlessBackend(api_key=told["api_key"], base_url=f"{told['control_url']}/v1")
    # From 0.5.20 on, a model has a `run_name`, by which the server knows it.
    named = [each for each in ("name", "run_name") if each in inspect.signature(art.TrainableModel).parameters]
    model = art.TrainableModel(
        **dict.fromkeys(named, told["name"]), project="interop", base_model=told["base_model"], base_path=told["folder"]
    )
    await model.register(backend)

    async def train(_number: int, groups: list[art.TrajectoryGroup]) -> int:
        result = await backend.train(model, groups, learning_rate=game.LEARNING_RATE)
        await model.log(groups, split="train", metrics=result.metrics, step=result.step)
        return result.step

    learnt = await lesson.teach(model, train, newest=model.get_inference_name(), first=model.get_inference_name(step=0))
    await model.log(learnt.groups, split="val")
    await model.delete_checkpoints()
    spare = model.model_copy(update=dict.fromkeys(named, f"{model.name}-spare"))
    await spare.register(backend)
    await backend.delete(spare)
    await backend.close()
    game.report(probabilities=learnt.probabilities, steps=learnt.steps, at_first=learnt.at_first)


asyncio.run(main())
