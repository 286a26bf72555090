"""Measure how well `relative_judge` finds a planted ranking, with a judge whose noise and bias are known.

    python -m bench judge

The judge is a script: it reads the planted quality of each attempt from the prompt, adds noise to it, and adds a
bonus to the attempts that are shown early. So the table shows what the evaluator makes of a judge's faults, and what it
costs; it says nothing about any real model.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from random import Random
from statistics import fmean

from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import ComparisonFacts, EvalInput, EvalInputItem, EvalOutputItem
from nat.plugins.relative_judge.config import RelativeJudgeConfig
from nat.plugins.relative_judge.evaluator import RelativeJudge
from nat.plugins.relative_judge.prompt import Message

GROUPS = 200
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


@dataclass(frozen=True)
class Setting:
    """A judge, and how the evaluator asks it."""

    title: str
    faults: Faults = Faults()
    generations: int = 8
    both_orders: float = 0.1
    max_group: int = 8


SETTINGS = (
    Setting("exact"),
    Setting("noise 0.1", Faults(noise=0.1)),
    Setting("noise 0.3", Faults(noise=0.3)),
    Setting("noise 0.3, both orders", Faults(noise=0.3), both_orders=1),
    Setting("first +0.3", Faults(bias=0.3)),
    Setting("first +0.3, both orders", Faults(bias=0.3), both_orders=1),
    Setting("only the first counts", Faults(bias=1, blind=True)),
    Setting("only the first counts, both orders", Faults(bias=1, blind=True), both_orders=1),
    Setting("noise 0.1, pairs", Faults(noise=0.1), generations=2),
    Setting("noise 0.1, 16 in one call", Faults(noise=0.1), generations=16, max_group=16),
    Setting("noise 0.1, 16 in calls of 8", Faults(noise=0.1), generations=16),
    Setting("noise 0.1, 10 % invalid replies", Faults(noise=0.1, invalid=0.1)),
)


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


@dataclass(frozen=True)
class Measured:
    """A setting's results over all groups."""

    tau: float
    """Mean Kendall's tau-b between the scores and the planted ranking, over the groups that have scores."""
    failed: int
    """Groups without scores."""
    facts: ComparisonFacts
    calls: float
    """Per group; likewise the next."""
    tokens: float


def tau_b(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b: 1 for the same ranking, 0 for none or one that is all ties, -1 for the reversed one."""
    signs = [
        ((first[a] > first[b]) - (first[a] < first[b]), (second[a] > second[b]) - (second[a] < second[b]))
        for a, b in combinations(range(len(first)), 2)
    ]
    untied = sqrt(sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs))
    return sum(x * y for x, y in signs) / untied if untied else 0.0


async def measure(setting: Setting, groups: int = GROUPS, seed: int = 0) -> Measured:
    """Let the judge score groups of attempts with planted qualities."""
    rng = Random(seed)
    config = RelativeJudgeConfig(
        llm_name=LLMRef("judge"), both_orders=setting.both_orders, max_group=setting.max_group, seed=seed
    )
    scripted = ScriptedJudge(setting.faults, rng)
    judge = RelativeJudge(config, scripted)
    taus, facts, failed = list[float](), ComparisonFacts(), 0
    for group in range(groups):
        planted = [rng.random() for _ in range(setting.generations)]
        results = await _scores(judge, [judge_input(str(group), n, quality) for n, quality in enumerate(planted)])
        failed += not results
        if results:
            taus.append(tau_b([float(result.score) for result in results], planted))
            facts = sum((result.comparison for result in results if result.comparison), facts)
    tau = fmean(taus) if taus else 0.0
    return Measured(tau, failed, facts, scripted.calls / groups, scripted.tokens / groups)


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


async def _scores(judge: RelativeJudge, items: Sequence[EvalInputItem]) -> list[EvalOutputItem]:
    output = await judge.evaluate(EvalInput(eval_input_items=list(items)))
    return [result for result in output.eval_output_items if result.score is not None]


def row(setting: Setting, found: Measured) -> str:
    """A line of the table."""
    facts = found.facts
    bias = "-" if facts.position_bias is None else f"{facts.position_bias:+.2f}"
    flips = f"{facts.flipped / facts.pairs:.0%}" if facts.pairs else "-"
    cells = [f"{found.tau:.2f}", bias, flips, f"{found.calls:.2f}", f"{found.tokens:,.0f}", str(found.failed)]
    return f"| {setting.title} | {' | '.join(cells)} |"


async def main() -> None:
    """Print the table."""
    print(f"{GROUPS} groups of 8 attempts unless the name says otherwise; tokens are characters / 4.\n")
    print("| judge | Kendall's tau | position bias | flips | calls per group | tokens per group | failed |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for setting in SETTINGS:
        print(row(setting, await measure(setting)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
