"""The files of a job: pairs split into training and validation, one JSON line per row. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from nat.errors import InvalidTrajectories
from nat.plugins.customizer.dpo.pairs import CustomizerPair, Message

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


@dataclass(frozen=True)
class Split:
    """Pairs to train and to validate on; no example, and no pair, is in both."""

    training: list[CustomizerPair]
    validation: list[CustomizerPair]


def split(pairs: Sequence[CustomizerPair], rng: Random) -> Split:
    """Draw the examples whose pairs are validated on; all turns of an example stay together.

    Raises:
        InvalidTrajectories: all pairs are of one example.

    """
    examples = sorted({pair.example_id for pair in pairs})
    rng.shuffle(examples)
    held_out = set(examples[: max(1, round(VALIDATION_SHARE * len(examples)))])
    training = [pair for pair in pairs if pair.example_id not in held_out]
    trained = {_content(pair) for pair in training}
    validation = [pair for pair in pairs if pair.example_id in held_out and _content(pair) not in trained]
    if not training or not validation:
        seen = "all are of one example" if len(examples) == 1 else "the examples have equal pairs"
        raise InvalidTrajectories(
            f"{len(pairs)} preference pairs cannot be split into training and validation: {seen}",
            hint="play more examples, so that some can be kept apart for the service's validation",
        )
    return Split(training, validation)


def preference_row(pair: CustomizerPair) -> Row:
    """The keys of the microservices' DPO."""
    return {"prompt": pair.prompt, "chosen_response": pair.chosen, "rejected_response": pair.rejected}


def platform_row(pair: CustomizerPair) -> Row:
    """The keys of NeMo Platform's DPO, which are TRL's."""
    return {"prompt": pair.prompt, "chosen": pair.chosen, "rejected": pair.rejected}


def demonstration_row(pair: CustomizerPair) -> Row:
    """A row of the microservices' SFT: the chosen response alone."""
    if isinstance(pair.prompt, str):
        return {"prompt": pair.prompt, "completion": pair.chosen}
    answer: Message = {"role": "assistant", "content": pair.chosen}
    return {"messages": [*pair.prompt, answer]}


def json_lines(pairs: Sequence[CustomizerPair], row: Callable[[CustomizerPair], Row]) -> bytes:
    """The rows in order; a demonstration that won against several responses is written once."""
    lines = [json.dumps(row(pair), ensure_ascii=False) for pair in pairs]
    if row is demonstration_row:
        lines = list(dict.fromkeys(lines))
    return "\n".join(lines).encode(errors="replace")


def _content(pair: CustomizerPair) -> str:
    return json.dumps([pair.prompt, pair.chosen, pair.rejected], sort_keys=True)
