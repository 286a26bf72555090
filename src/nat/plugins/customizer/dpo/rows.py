"""The files of a job: pairs split into training and validation, one JSON line per row. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from nat.data_models.finetuning import DPOItem
from nat.errors import InvalidTrajectories

VALIDATION_SHARE = 0.2
"""Share of the examples whose pairs the service validates on."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Dataset:
    """Two files of JSON lines."""

    name: str
    run_id: str
    training: bytes
    validation: bytes

    @property
    def description(self) -> str:
        return f"NAT preference pairs of run {self.run_id}"


def split(pairs: Sequence[tuple[str, DPOItem]], rng: Random) -> tuple[list[DPOItem], list[DPOItem]]:
    """The pairs to train and to validate on, of examples drawn at random.

    All turns of an example stay together; no pair is in both.

    Raises:
        InvalidTrajectories: all pairs are of one example, or the examples have equal pairs.

    """
    examples = sorted({example for example, _ in pairs})
    rng.shuffle(examples)
    held_out = set(examples[: max(1, round(VALIDATION_SHARE * len(examples)))])
    training = [pair for example, pair in pairs if example not in held_out]
    trained = {pair.model_dump_json() for pair in training}
    validation = [pair for example, pair in pairs if example in held_out and pair.model_dump_json() not in trained]
    if not training or not validation:
        seen = "all are of one example" if len(examples) == 1 else "the examples have equal pairs"
        raise InvalidTrajectories(
            f"{len(pairs)} preference pairs cannot be split into training and validation: {seen}",
            hint="play more examples, so that some can be kept apart for the service's validation",
        )
    return training, validation


def preference_row(pair: DPOItem) -> Row:
    """The keys of the microservices' DPO."""
    return pair.model_dump(exclude_none=True)


def platform_row(pair: DPOItem) -> Row:
    """The keys of NeMo Platform's DPO, which are TRL's."""
    row = preference_row(pair)
    return {"prompt": row["prompt"], "chosen": pair.chosen_response, "rejected": pair.rejected_response}


def demonstration_row(pair: DPOItem) -> Row:
    """A row of the microservices' SFT: the chosen response alone."""
    prompt = preference_row(pair)["prompt"]
    if isinstance(prompt, str):
        return {"prompt": prompt, "completion": pair.chosen_response}
    return {"messages": [*prompt, {"role": "assistant", "content": pair.chosen_response}]}


def json_lines(pairs: Sequence[DPOItem], row: Callable[[DPOItem], Row]) -> bytes:
    """The rows in order; a demonstration that won against several responses is written once."""
    lines = [json.dumps(row(pair), ensure_ascii=False) for pair in pairs]
    if row is demonstration_row:
        lines = list(dict.fromkeys(lines))
    return "\n".join(lines).encode(errors="replace")
