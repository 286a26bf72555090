"""An openpipe-art client up to 0.5.7 continues a model that was trained before."""

import asyncio

import art
import game


async def main() -> None:
    """Register under the old name and read the probability of the rewarded tokens."""
    told = game.settings()
    model = art.TrainableModel(name=told["name"], project="interop", base_model=told["base_model"])
    await model.register(art.Backend(base_url=told["control_url"]))
    client = model.openai_client()
    wanted = await game.wanted_tokens(client, told["base_model"])
    probability = await game.probability(client, model.get_inference_name(), wanted)
    game.report(probability=probability, step=await model.get_step())


asyncio.run(main())
