"""A judge for `relative_judge` that reads the planted quality of each attempt from the prompt, with known faults."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from random import Random

from nat.data_models.evaluator import EvalInputItem
from nat.plugins.evaluators.attempts import Message

_ATTEMPT = re.compile(r"^<attempt (\d+) (\w{16})>\n(.*?)\n</attempt \1 \2>$", re.DOTALL | re.MULTILINE)
_QUALITY = re.compile(r"quality (\d\.\d+)")


@dataclass(frozen=True)
class Faults:
    """What is wrong with the scripted judge."""

    noise: float = 0.0
    """Standard deviation of an error of each score."""
    bias: float = 0.0
    """Added to the score of the first attempt, less to each later one, nothing to the last."""
    blind: bool = False
    """Scores by the place alone."""
    invalid: float = 0.0
    """Share of the replies that are no judgement."""


class ScriptedJudge:
    """Answers a prompt of `relative_judge` by the planted qualities in it, with known faults; counts what it took."""

    def __init__(self, faults: Faults, rng: Random) -> None:
        self._faults = faults
        self._rng = rng
        self.calls = self.tokens = 0

    async def __call__(self, messages: Sequence[Message]) -> str:
        prompt = "".join(message["content"] for message in messages)
        text = self.reply(messages[1]["content"])
        self.calls += 1
        self.tokens += len(prompt) // 4 + len(text) // 4
        return text

    def reply(self, shown: str) -> str:
        if self._rng.random() < self._faults.invalid:
            return "I like the second one best."
        attempts = _ATTEMPT.findall(shown)
        qualities = [float(found[1]) for _, _, text in attempts if (found := _QUALITY.search(text))]
        raw = [self._seen(quality, place, len(qualities)) for place, quality in enumerate(qualities)]
        low, high = min(0.0, *raw), max(1.0, *raw)
        scores = [round((score - low) / (high - low), 3) for score in raw]
        entries = [{"attempt": at, "why": "", "score": score} for at, score in enumerate(scores, 1)]
        return json.dumps({"code": attempts[0][1], "scores": entries})

    def _seen(self, quality: float, place: int, count: int) -> float:
        bonus = self._faults.bias * (count - 1 - place) / (count - 1)
        if self._faults.blind:
            return bonus
        return quality + self._rng.gauss(0, self._faults.noise) + bonus


def tau_b(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b: 1 for the same ranking, 0 for none or one that is all ties, -1 for the reversed one."""
    signs = [
        ((first[a] > first[b]) - (first[a] < first[b]), (second[a] > second[b]) - (second[a] < second[b]))
        for a, b in combinations(range(len(first)), 2)
    ]
    untied = sqrt(sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs))
    return sum(x * y for x, y in signs) / untied if untied else 0.0


def judge_input(example: str, number: int, quality: float) -> EvalInputItem:
    """An attempt with a planted quality."""
    answer = f"An answer of quality {quality:.6f}."
    return EvalInputItem(
        id=f"{example}_rep{number}",
        repetition_of=example,
        input_obj=f"task {example}",
        expected_output_obj=None,
        output_obj=answer,
    )
