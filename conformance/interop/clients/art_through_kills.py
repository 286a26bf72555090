"""An openpipe-art client up to 0.5.7 whose server is killed while it trains: it asks for the step, and trains again."""

import asyncio
import time
from pathlib import Path

import art
import game
import lesson

SECONDS_BETWEEN = 0.5
TRIALS = 3


def begun(number: int) -> None:
    """Tell the driver that a round is trained now."""
    Path(f"round_{number}").touch()


def wait_for_the_server(number: int) -> None:
    """Wait until it is there again; before that, rollouts would fail, which is not what is tried here."""
    while not Path(f"again_{number}").exists():
        time.sleep(SECONDS_BETWEEN)


async def main() -> None:
    """Learn as `art_backend` does."""
    told = game.settings()
    backend = art.Backend(base_url=told["control_url"])
    model = art.TrainableModel(name=told["name"], project="interop", base_model=told["base_model"])
    await model.register(backend)

    async def train(number: int, groups: list[art.TrajectoryGroup]) -> int:
        begun(number)
        before = step = await model.get_step()
        for _ in range(TRIALS):
            if step > before:
                break
            try:
                await model.train(groups, config=art.TrainConfig(learning_rate=game.LEARNING_RATE))
            except Exception as error:  # noqa: BLE001 - whatever the client makes of a broken connection
                print("killed:", repr(error), flush=True)
            if number in told["rounds_killed"]:
                await asyncio.to_thread(wait_for_the_server, number)
                await model.register(backend)
            step = await model.get_step()
        return step

    name = model.get_inference_name()
    learnt = await lesson.teach(model, train, newest=name, first=f"{name}@0")
    await backend.close()
    game.report(probabilities=learnt.probabilities, steps=learnt.steps)


asyncio.run(main())
