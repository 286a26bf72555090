"""Judge from a probe's numbers whether training has a signal, and say what would give one. Pure."""

from collections.abc import Sequence

from nat.errors import NoLearningSignal
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.conditions_of_rollouts import OF_ANSWERS, OF_ROLLOUTS
from nat.finetuning.diagnosis.conditions_of_scores import NOISE, NOISE_ALONE, OF_SCORES
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.probe.records import Measured, ProbeReport, Signal
from nat.finetuning.probe.statistics import advised_generations, interval_of_share
from nat.runs.plot import duration
from nat.runs.records import Finding
from nat.wire import rewards

BEFORE_UPDATES = (*OF_ROLLOUTS, *OF_ANSWERS, *OF_SCORES)
"""The conditions that can be judged without an update."""


def judge(measured: Measured, window: Window) -> ProbeReport:
    """The verdict, with its causes and the advised number of generations; the window has the probe's one epoch.

    What would end a run at once hides all else.
    """
    signal = _signal(measured, window)
    findings = [] if measured.stops else diagnosis_of(window, BEFORE_UPDATES).findings
    if not findings and signal is Signal.NONE:
        findings = [_lost(measured)]
    return ProbeReport(
        signal=signal,
        sentence=_sentence(signal, measured, findings),
        findings=list(findings),
        advised_generations=advised_generations(measured.prospects) if measured.prospects else None,
        interval=interval_of_share(measured.num_differing, len(measured.groups)) if measured.groups else None,
        measured=measured,
    )


def interim_text(report: ProbeReport, seconds: float) -> str:
    """What is known after a round, `seconds` after the start, in a line."""
    measured = report.measured
    seen = f"no rollout of {measured.num_rollouts} can be trained on"
    if report.interval is not None:
        low, high = report.interval
        groups = f"{measured.num_differing} of {len(measured.groups)} groups have a difference in reward"
        seen = f"{groups} (95% interval {low:.0%} to {high:.0%}), mean reward {measured.metrics['reward/mean']:.3g}"
    return f"after {len(measured.examples)} examples ({duration(seconds)}): {seen}"


def raise_without_signal(report: ProbeReport) -> None:
    """Raise NoLearningSignal, with the first finding, if training has none."""
    if report.signal is Signal.NONE:
        first = report.findings[0]
        raise NoLearningSignal(f"{report.sentence} {first.sentence}", hint=first.remedy or None)


def _signal(measured: Measured, window: Window) -> Signal:
    noise = 0.0 if measured.noise is None else measured.noise.share
    differ = not rewards.equal(measured.rewards) if measured.across_groups else measured.num_differing > 0
    if measured.stops is not None or not differ or noise > NOISE_ALONE:
        return Signal.NONE
    return Signal.WEAK if window.equal_groups > window.guards.max_equal_groups or noise > NOISE else Signal.FOUND


def _sentence(signal: Signal, measured: Measured, findings: Sequence[Finding]) -> str:
    why = f"{findings[0].title[0].lower()}{findings[0].title[1:]}" if findings else ""
    if signal is Signal.NONE:
        return f"Training on these examples has no signal: {why}."
    how = "a signal" if signal is Signal.FOUND else "a weak signal"
    count = f"{measured.num_differing} of {len(measured.groups)} groups have a difference in reward"
    return f"Training on these examples has {how}: {count}{f'; {why}' if why and signal is Signal.WEAK else ''}."


def _lost(measured: Measured) -> Finding:
    causes = "; ".join(f"{count} x {cause}" for cause, count in measured.left_out.items())
    lost = f"{sum(measured.left_out.values())} of {measured.num_rollouts} rollouts cannot be trained on: {causes}"
    return Finding(
        cause="rollouts_lost",
        title="Rollouts are lost",
        share=1.0,
        seen=measured.stops or lost,
        healthy="a run would go on",
        remedy=measured.lost_remedy or "",
    )
