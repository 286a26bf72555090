"""Preferences and demonstrations as token ids: what a job sends, and what TRL's collators take."""

from pathlib import Path
from random import Random
from typing import Any

import torch

from fakes.tiny_model import make_tiny_model
from fakes.training_rows import answer_row
from nat.backend.model_loader import load_model
from nat.wire.training import TrainingGroup, TrainingRollout

NUM_PAIRS = 3
WITHOUT_SFT = {"sft_loss_weight": 0.0}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("dpo", {"beta": 0.1, "options": WITHOUT_SFT}, {"beta": 0.1}),
    (
        "dpo",
        {"beta": 0.5, "options": {"loss_type": "sigmoid_norm", **WITHOUT_SFT}},
        {"beta": 0.5, "loss_type": ["sigmoid_norm"]},
    ),
    ("dpo", {"beta": 0.2, "options": {"loss_type": "ipo", **WITHOUT_SFT}}, {"beta": 0.2, "loss_type": ["ipo"]}),
    (
        "dpo",
        {"options": {"loss_type": "robust", "label_smoothing": 0.1, **WITHOUT_SFT}},
        {"loss_type": ["robust"], "label_smoothing": 0.1},
    ),
    (
        "dpo",
        {"options": {"sft_loss_weight": 0.7}},
        {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.7]},
    ),
    ("kto", {"options": {"undesirable_weight": 1.0}}, {"beta": 0.1}),
    (
        "kto",
        {"beta": 0.3, "options": {"desirable_weight": 1.5, "undesirable_weight": 0.5}},
        {"beta": 0.3, "desirable_weight": 1.5, "undesirable_weight": 0.5},
    ),
    ("sft", {}, {}),
]
"""An algorithm, our settings of it, and TRL's arguments for the same."""


def make_models(folder: Path) -> tuple[Path, Path]:
    """A policy and the reference that it has moved away from."""
    reference = make_tiny_model(folder / "reference", "qwen2")
    loaded = load_model(reference, device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    policy = folder / "policy"
    loaded.model.save_pretrained(policy)
    loaded.tokenizer.hf.save_pretrained(policy)
    return policy, reference


def drawn_pairs() -> list[dict[str, list[int]]]:
    """Prompts with a chosen and a rejected completion each, of different lengths."""
    random = Random(7)

    def ids(length: int) -> list[int]:
        return [random.randrange(250) for _ in range(length)]

    return [
        {"prompt_ids": ids(3 + n), "chosen_ids": [10, *ids(4 + n)], "rejected_ids": [20, *ids(7 - 2 * n)]}
        for n in range(NUM_PAIRS)
    ]


def trl_examples(method: str) -> list[dict[str, Any]]:
    """The pairs as TRL's collator for this method takes them; a KL completion is that of another prompt."""
    pairs = drawn_pairs()
    if method == "dpo":
        return [dict(pair) for pair in pairs]
    sides = [(pair, side) for pair in pairs for side in ("chosen_ids", "rejected_ids")]
    if method == "sft":
        return [
            {
                "input_ids": pair["prompt_ids"] + pair["chosen_ids"],
                "labels": [-100] * len(pair["prompt_ids"]) + pair["chosen_ids"],
            }
            for pair in pairs
        ]
    completions = [pair[side] for pair, side in sides]
    return [
        {
            "prompt_ids": pair["prompt_ids"],
            "completion_ids": pair[side],
            "KL_completion_ids": completions[number - 2],
            "label": side == "chosen_ids",
        }
        for number, (pair, side) in enumerate(sides)
    ]


def preference_groups(method: str) -> list[TrainingGroup]:
    """The same as groups of a job: pairs of a better and a worse rollout, or demonstrations."""
    groups = []
    for number, pair in enumerate(drawn_pairs()):
        sides = ["chosen_ids"] if method == "sft" else ["chosen_ids", "rejected_ids"]
        rollouts = [
            TrainingRollout(reward=float(side == "chosen_ids"), rows=[answer_row(pair["prompt_ids"], pair[side])])
            for side in sides
        ]
        groups.append(TrainingGroup(id=f"{number}", rollouts=rollouts))
    return groups
