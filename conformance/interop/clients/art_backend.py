"""An openpipe-art client up to 0.5.7 trains through its own `art.Backend(base_url=…)`."""

import asyncio

import art
import game
import lesson


async def main() -> None:
    """Register, learn, then log, tidy up and close."""
    told = game.settings()
    backend = art.Backend(base_url=told["control_url"])
    model = art.TrainableModel(name=told["name"], project="interop", base_model=told["base_model"])
    await model.register(backend)

    async def train(_number: int, groups: list[art.TrajectoryGroup]) -> int:
        await model.train(groups, config=art.TrainConfig(learning_rate=game.LEARNING_RATE))
        return await model.get_step()

    name = model.get_inference_name()
    learnt = await lesson.teach(model, train, newest=name, first=f"{name}@0")
    await model.log(learnt.groups, split="val")
    await model.delete_checkpoints()
    await backend.close()
    game.report(probabilities=learnt.probabilities, steps=learnt.steps, at_first=learnt.at_first)


asyncio.run(main())
