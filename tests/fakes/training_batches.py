"""Batches for the learner: token ids with the log probabilities that the model gives them."""

from collections.abc import Sequence
from random import Random

import torch

from fakes.listeners import one, run
from fakes.training_rows import answer_row
from nat.backend.inference.engine import Engine
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.mismatch import served_logprobs
from nat.wire.training import Span, TrainingGroup, TrainingRollout, TrainingRow


def training_row(
    loaded: LoadedModel, token_ids: list[int], sampled: list[int], temperatures: list[float] | None = None
) -> TrainingRow:
    """A row whose tokens at the indices `sampled` carry the model's log probabilities, at 1 or at `temperatures`.

    Neighbours of one temperature are one answer.
    """
    targets = [token_ids[at] for at in sampled]
    positions = [at - 1 for at in sampled]
    row = Row(0, 0, 0, token_ids[:-1], positions, targets, [], [0.0] * len(sampled), temperatures=temperatures)
    values = served_logprobs(loaded, [row])[0].tolist()
    told = temperatures or [1.0] * len(sampled)
    spans: list[Span] = []
    for at, value, temperature in zip(sampled, values, told, strict=True):
        if spans and (spans[-1].stop, spans[-1].temperature) == (at, temperature):
            last = spans.pop()
            spans.append(last.model_copy(update={"stop": at + 1, "logprobs": [*(last.logprobs or ()), value]}))
        else:
            spans.append(Span(start=at, stop=at + 1, logprobs=[value], temperature=temperature))
    return TrainingRow(token_ids=token_ids, spans=spans)


def random_row(
    loaded: LoadedModel, random: Random, length: int, prompt: Sequence[int] = (), temperatures: Sequence[float] = ()
) -> TrainingRow:
    """Random tokens after the prompt; about half of them count as sampled, the last one always."""
    token_ids = [*prompt, *(random.randrange(250) for _ in range(length))]
    first = len(prompt) or 3
    sampled = [at for at in range(first, len(token_ids) - 1) if random.random() < 0.5]
    sampled.append(len(token_ids) - 1)
    drawn = [random.choice(temperatures) for _ in sampled] if temperatures else None
    return training_row(loaded, token_ids, sampled, drawn)


def random_groups(
    loaded: LoadedModel,
    *,
    groups: int = 3,
    rollouts: int = 4,
    seed: int = 0,
    rows: int = 1,
    prompt: int = 0,
    temperatures: Sequence[float] = (),
) -> list[TrainingGroup]:
    """Groups of rollouts with one or more rows of 6 to 20 tokens, after a prompt of the group, and random rewards.

    Each token was sampled at one of the temperatures, or at 1.
    """
    random = Random(seed)
    prompts = [[random.randrange(250) for _ in range(prompt)] for _ in range(groups)]
    with torch.no_grad():
        return [
            TrainingGroup(
                id=f"example-{number}",
                rollouts=[
                    TrainingRollout(
                        reward=random.choice([0.0, 0.25, 1.0]) + 0.01 * index,
                        rows=[
                            random_row(loaded, random, random.randint(6, 20), prompts[number], temperatures)
                            for _ in range(rows)
                        ],
                    )
                    for index in range(rollouts)
                ],
            )
            for number in range(groups)
        ]


def sampled_groups(loaded: LoadedModel) -> list[TrainingGroup]:
    """Groups of answers that the engine sampled, with the log probabilities that it reported."""
    random = Random(0)
    prompts = [[random.randrange(250) for _ in range(20)] for _ in range(8)]
    engine = Engine(loaded, policy_version="m@0")
    done = run(engine, *(one(p, max_tokens=24, seed=seed, ignore_eos=True) for seed, p in enumerate(prompts)))
    rows = [answer_row(s.prompt_ids, s.token_ids, s.logprobs) for s in done]
    rollouts = [TrainingRollout(reward=number % 2, rows=[row]) for number, row in enumerate(rows)]
    return [TrainingGroup(id="a", rollouts=rollouts[:4]), TrainingGroup(id="b", rollouts=rollouts[4:])]


def shifted(groups: Sequence[TrainingGroup], by: float) -> list[TrainingGroup]:
    """The same groups with other log probabilities of the sampler."""
    text = [g.model_dump() for g in groups]
    for group in text:
        for rollout in group["rollouts"]:
            for span in (span for row in rollout["rows"] for span in row["spans"]):
                span["logprobs"] = [p + by for p in span["logprobs"]]
    return [TrainingGroup.model_validate(g) for g in text]
