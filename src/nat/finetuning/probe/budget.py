"""How much of a probe fits into its time, and when its answer is clear. Pure: the caller has the clock.

A probe plays in rounds, each with as many examples as all rounds before it, and looks at its report after each.
"""

from nat.finetuning.probe.records import ProbeReport, Signal

FIRST_ROUND = 2
"""Examples of the first round: so few that a slow model has answered them soon, and more than one group."""
FULL = 2
"""Rollouts for each that is played at a time, from which on a round is as fast as an epoch."""


def next_round(examples: int, played: int, *, playing: float, left: float) -> int:
    """How many of the examples to play next, after `played` ones that took `playing` seconds; 0 ends the probe.

    `left` are the seconds that are left. The first round is played whatever loading has taken.
    """
    count = min(played or FIRST_ROUND, examples - played)
    return int(min(count, max(0.0, left) / playing * played)) if playing else count


def is_clear(now: ProbeReport, before: ProbeReport | None, *, weak_below: float, full: bool) -> bool:
    """Whether more examples would hardly change the advice.

    A run without a usable rollout ends at once, so one round shows it. Otherwise two rounds in a row must say the same:
    verdict, causes and generations; one look at an interval would be lucky too often, since there are several. A
    round must be `full`, so that its speed is that of an epoch. The interval of the share of groups with a difference
    must exclude `weak_below`, the share below which a run warns: the advice is to train above it, and to change the
    examples below. Without any difference nothing is clear, because further rollouts may still show a rare success. An
    algorithm that compares across groups needs no such share.
    """
    measured = now.measured
    if not measured.groups:
        return True
    if not full or before is None or _advice(now) != _advice(before) or now.interval is None:
        return False
    if measured.stops is not None or measured.across_groups:
        return measured.stops is not None or now.signal is Signal.FOUND
    low, high = now.interval
    return measured.num_differing > 0 and not low <= weak_below <= high


def _advice(report: ProbeReport) -> tuple[object, ...]:
    return report.signal, [finding.cause for finding in report.findings], report.advised_generations
