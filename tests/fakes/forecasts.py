"""A backend's forecast of a model with a billion weights, and the speed that it measured."""

from nat.sizing.forecast import FittingSettings, Speed, TrainingForecast
from nat.sizing.memory import PredictedMemory

SPEED = Speed(
    chats=4,
    prompt_tokens_per_second=1000,
    step_seconds=0.1,
    trained_tokens=64,
    trained_tokens_per_second=500,
    optimizer_seconds=1,
)
FORECAST = TrainingForecast(
    device="cpu",
    dtype="float32",
    num_parameters=10**9,
    learning_rate=1e-5,
    optimizer_steps=2,
    memory=[
        PredictedMemory(title="all weights", parts={"weights": 4 * 10**9, "gradients": 4 * 10**9}, total=8 * 10**9),
        PredictedMemory(title="LoRA, rank 16", parts={"weights": 4 * 10**9}, total=4 * 10**9, longest_row=2048),
    ],
    available=9 * 10**9,
    capacity=16 * 10**9,
    fitting=(FittingSettings(settings="lora: {rank: 16}", bytes=10**9),),
    speed=SPEED,
)
