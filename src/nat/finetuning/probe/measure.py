"""From the rollouts of a probe to its numbers. Pure but for the time of its record."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from statistics import fmean

from nat.data_models.finetuning import FinetuneConfig, TrajectoryCollection
from nat.errors import RunFailed
from nat.finetuning import guards
from nat.finetuning.diagnosis.condition import reworded
from nat.finetuning.diagnosis.facts import Facts, ReferenceScores
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.epoch import PlayedEpoch, epoch_record
from nat.finetuning.metrics import metrics_of_rollouts
from nat.finetuning.plan import Plan
from nat.finetuning.probe.records import ExampleResult, Measured, ProbeAnswer
from nat.finetuning.probe.rounds import RUN_ID, PlayedExamples
from nat.finetuning.probe.statistics import prospects, score_noise, value_counts
from nat.finetuning.run_context import utc_now
from nat.finetuning.trajectories.groups import example_id, has_signal
from nat.runs.records import EpochRecord
from nat.runs.rollouts import RolloutRecord, RolloutTally, tally
from nat.secrets import redact

_SHOWN_CHARS = 120
_FILE = "nat probe --output FILE"
_WORDING: Mapping[str, str] = {
    "nat runs show latest --epoch 1 --worst 1": _FILE,
    "the run's failures.txt": f"the file of `{_FILE}`",
    "failures.txt": f"the file of `{_FILE}`",
}
"""A probe has no folder."""


def measure(
    played: PlayedExamples,
    plan: Plan,
    *,
    references: ReferenceScores | None,
    model: Mapping[str, str],
    across_groups: bool,
) -> tuple[Measured, Window]:
    """All numbers of the report, and the window to judge."""
    finetuning, counts = plan.finetuning, tally(played.records)
    assert finetuning.reward_function is not None, "set before the run"
    examples, noise = _results(played), score_noise(played.scores_EGK)
    counts_EV = value_counts([example.rewards for example in examples if example.rewards])
    expected = prospects(counts_EV) if counts_EV else []
    facts = Facts(
        target_functions=finetuning.target_functions,
        target_model=finetuning.target_model,
        wording=_WORDING,
        compares="batch" if across_groups else "group",
        last_rollouts=played.records,
        noise=noise,
        references=references,
        most_generations=expected[-1] if expected else None,
    )
    window = Window(_epoch(played), facts=facts, guards=finetuning.guards)
    measured = Measured(
        config_file=str(plan.given.config_file),
        model=dict(model),
        reward=finetuning.reward_function.name,
        num_examples=plan.num_examples,
        examples=examples,
        num_rollouts=counts.num_rollouts,
        left_out={str(cause): count for cause, count in counts.causes.most_common()},
        failures=list(counts.failures),
        stops=_stops(counts, finetuning),
        lost_remedy=reworded(guards.remedy_of_left_out(counts, counts.failures), _WORDING) if counts.failures else None,
        metrics={"time/rollout": played.seconds, **(window.metrics or [metrics_of_rollouts(played.records)])[0]},
        seconds_per_rollout=fmean(record.seconds for record in played.records) if played.records else 0.0,
        longest_answer=max((record.completion_tokens for record in played.records), default=0),
        across_groups=across_groups,
        configured_generations=plan.stages[0].num_generations,
        noise=noise,
        references=references,
        answers=_answers(played),
        prospects=expected,
        warnings=list(plan.warnings),
    )
    return measured, window


def _epoch(played: PlayedExamples) -> list[EpochRecord]:
    """The rollouts as the first epoch of a run, none of whose groups is left out; empty if there are none."""
    if not any(played.groups):
        return []
    collected = TrajectoryCollection(trajectories=[list(group) for group in played.groups], run_id=RUN_ID)
    return [
        epoch_record(
            PlayedEpoch(0, RUN_ID, collected, collected, played.records),
            timestamp=utc_now(),
            curriculum=None,
            seconds=played.seconds,
            stages={"rollout": played.seconds},
            job={},
        )
    ]


def _stops(counts: RolloutTally, config: FinetuneConfig) -> str | None:
    """The message of the guard that would end a run after these rollouts; its remedy is that of the causes."""
    try:
        guards.check_trajectories(counts, target_functions=config.target_functions, target_model=config.target_model)
        guards.check_failures(counts, max_failure_rate=config.max_failure_rate)
    except RunFailed as error:
        return error.message
    return None


def _results(played: PlayedExamples) -> list[ExampleResult]:
    """One result per example, the hardest first; examples without a reward come last."""
    differing = {example_id(group[0]) for group in played.groups if has_signal(group)}
    records: dict[str, list[RolloutRecord]] = {str(item.id): [] for item in played.examples}
    for record in played.records:
        records.setdefault(record.example_id, []).append(record)
    results = [_result(example, own, differs=example in differing) for example, own in records.items()]
    return sorted(results, key=lambda result: (result.mean is None, result.mean or 0.0, result.id))


def _result(example: str, records: Sequence[RolloutRecord], *, differs: bool) -> ExampleResult:
    usable = [record for record in records if record.left_out is None and record.reward is not None]
    return ExampleResult(
        id=example,
        rewards=[record.reward for record in usable if record.reward is not None],
        left_out=len(records) - len(usable),
        truncated=sum(record.truncated for record in records),
        differs=differs,
    )


def _answers(played: PlayedExamples) -> list[ProbeAnswer]:
    """A rollout with the lowest reward and, if there is another reward, one with the highest."""
    ordered = sorted(played.records, key=lambda record: (record.example_id, record.generation))
    usable = [(each.reward, each) for each in ordered if each.left_out is None and each.reward is not None]
    if not usable:
        return []
    questions = {str(item.id): str(item.input_obj) for item in played.examples}
    lowest, highest = min(usable, key=itemgetter(0)), max(usable, key=itemgetter(0))
    shown = [lowest] if lowest[0] == highest[0] else [lowest, highest]
    return [
        ProbeAnswer(
            example_id=record.example_id,
            question=_in_line(questions.get(record.example_id, "")),
            output=_in_line(record.output or ""),
            reward=reward,
        )
        for reward, record in shown
    ]


def _in_line(text: str) -> str:
    return " ".join(redact(text).split())[:_SHOWN_CHARS]
