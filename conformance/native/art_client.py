"""`art_client.py MODEL FOLDER STEPS`: ART's `TinkerNativeBackend` trains; short answers are rewarded. Prints JSON."""

import asyncio
import json
import sys

import art
from art.tinker_native import TinkerNativeBackend

MODEL, FOLDER, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
SHORT = 8
"""Characters."""
QUESTIONS = [[{"role": "user", "content": text}] for text in ("go", "stop", "left", "right")]


async def rollout(model: art.TrainableModel, question: list[dict[str, str]]) -> art.Trajectory:
    client = model.openai_client()
    found = await client.chat.completions.create(
        model=model.get_inference_name(), messages=question, max_completion_tokens=8, temperature=1.0, logprobs=True
    )
    choice = found.choices[0]
    return art.Trajectory(
        messages_and_choices=[*question, choice], reward=float(len(choice.message.content or "") < SHORT)
    )


async def main() -> None:
    backend = TinkerNativeBackend(path=FOLDER)
    args = {"renderer_name": "role_colon", "training_client_args": {"rank": 8}}
    model = art.TrainableModel(
        name="agent",
        run_name="agent",
        project="conformance",
        base_model=MODEL,
        _internal_config={"tinker_native_args": args},
    )
    await model.register(backend)
    rewards = []
    for _ in range(STEPS):
        groups = await art.gather_trajectory_groups(
            art.TrajectoryGroup(rollout(model, question) for _ in range(8)) for question in QUESTIONS
        )
        rewards.append(sum(t.reward for g in groups for t in g.trajectories) / 32)
        result = await backend.train(model, groups, learning_rate=3e-3, save_checkpoint=True)
    print(json.dumps({"rewards": rewards, "step": result.step, "metrics": result.metrics}))
    await backend.close()


asyncio.run(main())
