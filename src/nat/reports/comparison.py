"""Two runs beside each other: what differs in their settings, their held-out scores by example, and their rewards."""

import json
from collections.abc import Mapping
from typing import Any

from nat.finetuning.verdict import Comparison, compare_validations
from nat.reports.overview import RunOverview, overview
from nat.reports.text import labelled, one_line, printable, table
from nat.runs.journal import Journal
from nat.runs.recorded_config import config_of, leaves
from nat.runs.records import Phase, RunRecord, Verdict, after_epoch, played_epochs

_IGNORED = ("finetuning.run_configuration.override",)
"""Its effects are the differences of other keys."""
_DECIDE_REWARDS = ("eval.", "finetuning.reward_function", "finetuning.run_configuration.dataset")
"""If these differ, rewards in training measure different things."""
_CELL = 60
_CONCLUSION = {
    Verdict.IMPROVED: "B scores higher than A:",
    Verdict.NOT_SHOWN: "No difference shown:",
    Verdict.WORSE: "B scores lower than A:",
    Verdict.CANNOT_TELL: "Cannot tell:",
}


class ConfigDifference(RunRecord):
    """A setting that the two runs do not share; None where a run does not have the key."""

    key: str
    a: str | None
    b: str | None


class HeldOutPair(RunRecord):
    """The last held-out scores of both runs, on the examples that both played."""

    epoch_a: int
    epoch_b: int
    comparison: Comparison
    """A stands for before, B for after."""
    sentence: str


class RunsComparison(RunRecord):
    """What `nat runs compare` shows."""

    a: RunOverview
    b: RunOverview
    differences: list[ConfigDifference]
    held_out: HeldOutPair | None
    rewards_a: list[float]
    rewards_b: list[float]
    warnings: list[str]
    """Why figures of the two runs may not be comparable."""


def compare_runs(a: Journal, b: Journal) -> RunsComparison:
    """Compare two runs, each of which may have ended in any way or be going on."""
    differences = config_differences(*(config_of(each.info().config_text) for each in (a, b)))
    held_out, warnings = _held_out(a, b)
    if decisive := [each.key for each in differences if each.key.startswith(_DECIDE_REWARDS)]:
        warnings.append(f"rewards in training may not be comparable, since {', '.join(decisive)} differ")
    return RunsComparison(
        a=overview(a),
        b=overview(b),
        differences=differences,
        held_out=held_out,
        rewards_a=[epoch.avg_reward for epoch in played_epochs(a.epochs())],
        rewards_b=[epoch.avg_reward for epoch in played_epochs(b.epochs())],
        warnings=warnings,
    )


def config_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[ConfigDifference]:
    """The keys whose values differ, with dots between their parts."""
    texts_a, texts_b = (
        {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            for key, value in own
        }
        for own in (leaves(a).items(), leaves(b).items())
    )
    return [
        ConfigDifference(key=key, a=texts_a.get(key), b=texts_b.get(key))
        for key in texts_a | texts_b
        if texts_a.get(key) != texts_b.get(key) and not key.startswith(_IGNORED)
    ]


def _held_out(a: Journal, b: Journal) -> tuple[HeldOutPair | None, list[str]]:
    """The comparison, or None with the reason among the warnings."""
    last_a, last_b = (next(reversed(each.validations()), None) for each in (a, b))
    if last_a is None or last_b is None:
        without = " and ".join(name for name, last in (("A", last_a), ("B", last_b)) if last is None)
        return None, [f"held-out scores cannot be compared: {without} played no held-out examples"]
    both = last_a.scores.keys() & last_b.scores.keys()
    if not both:
        return None, ["held-out scores cannot be compared: the runs have no held-out example in common, by id"]
    warnings = []
    if alone := len(last_a.scores.keys() ^ last_b.scores.keys()):
        warnings.append(
            f"the runs played different held-out examples: {alone} of {len(both) + alone} were in one run only "
            "and are left out here"
        )
    asked_a, asked_b = (
        {each.example_id: each.question for each in journal.rollouts(Phase.VALIDATION, last.epoch)}
        for journal, last in ((a, last_a), (b, last_b))
    )
    if other := sum(asked_a[key] != asked_b[key] for key in asked_a.keys() & asked_b.keys()):
        warnings.append(f"{other} of the {len(both)} common held-out examples ask another question under the same id")
    if untrained := [name for name, last in (("A", last_a), ("B", last_b)) if last.epoch == 0]:
        warnings.append(f"the last held-out scores of {' and '.join(untrained)} are those before training")
    if (result := compare_validations(last_a, last_b)) is None:
        return None, [*warnings, "held-out scores cannot be compared: no common example has a score"]
    sentence = result.described(_CONCLUSION[result.verdict], since="fail in B only", before="fail in A only")
    return HeldOutPair(epoch_a=last_a.epoch, epoch_b=last_b.epoch, comparison=result, sentence=sentence), warnings


def comparison_page(compared: RunsComparison) -> str:
    """The page about two runs."""
    runs = {"A": compared.a, "B": compared.b}
    parts = [labelled((name, f"{run.run_id}, {run.state}, {run.progress}, {run.folder}") for name, run in runs.items())]
    parts += [f"Warning: {text}" for text in compared.warnings]
    if (pair := compared.held_out) is not None:
        when = f"(A {after_epoch(pair.epoch_a)}, B {after_epoch(pair.epoch_b)})"
        parts.append(f"Held-out {when}\n{pair.sentence}")
    rewards = {"A": compared.rewards_a, "B": compared.rewards_b}
    if curves := [(name, f"{own[0]:.3f} → {own[-1]:.3f}") for name, own in rewards.items() if own]:
        parts.append(f"Mean reward in training\n{labelled(curves)}")
    rows = [
        [one_line("(not set)" if cell is None else cell, _CELL) for cell in (each.key, each.a, each.b)]
        for each in compared.differences
    ]
    settings = (
        f"Settings that differ\n{table(('key', 'A', 'B'), rows, left=3)}" if rows else "The settings are the same."
    )
    parts.append(settings)
    return printable("\n\n".join(parts))
