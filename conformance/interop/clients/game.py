"""The task of every client: answer each prompt with the token that was second likeliest at the start.

So the reward changes the model's first choice, and one greedy answer shows the token's probability. The module needs
only an OpenAI client, so it runs in every environment.
"""

import contextlib
import json
import math
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PROMPTS = ("red or blue?", "left or right?")
SAMPLES = 16
ROUNDS = 4
LEARNING_RATE = 3e-3
PACKAGES = ("openpipe-art", "nvidia-nat-openpipe-art", "openai", "pydantic")


def messages_of(prompt: str) -> list[dict[str, str]]:
    """The messages of a prompt."""
    return [{"role": "user", "content": prompt}]


async def answer(client: Any, model: str, prompt: str, seed: int, tokens: int = 3) -> Any:
    """Sample one choice as an agent does, without requesting logprobs, since ART's users request none."""
    completion = await client.chat.completions.create(
        model=model, messages=messages_of(prompt), max_completion_tokens=tokens, seed=seed
    )
    return completion.choices[0]


def seed_of(number: int, sample: int) -> int:
    """The seed of a round, the same in each run."""
    return 1000 * number + sample


def reward_of(choice: Any, wanted: str) -> float:
    """1 if the answer begins with the rewarded token, else 0."""
    return float(choice.logprobs.content[0].token == wanted)


async def wanted_tokens(client: Any, model: str) -> dict[str, str]:
    """The rewarded token of each prompt."""
    return {prompt: list(await _beginnings(client, model, prompt))[1] for prompt in PROMPTS}


async def probability(client: Any, model: str, wanted: dict[str, str]) -> float:
    """Mean probability of the rewarded first tokens, computed without sampling."""
    found = [(await _beginnings(client, model, prompt))[token] for prompt, token in wanted.items()]
    return sum(math.exp(logprob) for logprob in found) / len(found)


async def _beginnings(client: Any, model: str, prompt: str) -> dict[str, float]:
    """Logprobs of the 20 likeliest first tokens, likeliest first."""
    completion = await client.chat.completions.create(
        model=model,
        messages=messages_of(prompt),
        max_completion_tokens=1,
        temperature=0,
        logprobs=True,
        top_logprobs=20,
    )
    return {each.token: each.logprob for each in completion.choices[0].logprobs.content[0].top_logprobs}


def settings() -> dict[str, str]:
    """The driver's settings from `INTEROP`: the base model's id, the URLs and what else the script needs."""
    return json.loads(os.environ["INTEROP"])


def report(**result: Any) -> None:
    """Print the report for the driver as the last line."""
    print(json.dumps({"versions": versions(), **result}), flush=True)


def versions() -> dict[str, str]:
    """Versions of the installed packages that the report names."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
