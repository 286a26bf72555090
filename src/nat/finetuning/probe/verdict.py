"""Judge from a probe's numbers whether training has a signal, and say what would give one. Pure."""

from collections.abc import Iterator, Sequence

from nat.errors import NoLearningSignal
from nat.finetuning.diagnosis.fall import RAISE_LIMIT
from nat.finetuning.probe.records import ExampleResult, Measured, Noise, ProbeCause, ProbeFinding, ProbeReport, Signal
from nat.finetuning.probe.statistics import advised_generations, interval_of_share, scores_to_average
from nat.wire import rewards

NOISE_NAMED = 0.3
"""Share of noise in the differences within groups from which it is a finding."""
NOISE_WEAK = 0.5
"""Share of noise from which the signal is weak: training takes twice the rollouts."""
NOISE_ALONE = 0.75
"""Share of noise from which there is no signal: training would take four times the rollouts, if it learned at all."""
MOSTLY_TRUNCATED = 0.5
"""Share of truncated rollouts above which truncation explains equal rewards."""
LOST_NAMED = 0.1
"""Share of lost rollouts above which they are a finding."""

_EASIER = "Use easier examples, give partial credit, say in the prompt exactly what is wanted, or use a larger model."
_HARDER = "Use harder examples, or score what could still be better: on these the model has nothing to gain."
_CHECK = "Check the evaluator that finetuning.reward_function names: `nat eval` writes its reasoning for each answer."


def judge(measured: Measured) -> ProbeReport:
    """The verdict, with its causes and the advised number of generations."""
    findings = list(_findings(measured))
    signal = _signal(measured)
    return ProbeReport(
        signal=signal,
        sentence=_sentence(signal, measured, findings),
        findings=findings,
        advised_generations=advised_generations(measured.prospects) if measured.prospects else None,
        interval=interval_of_share(measured.num_differing, len(measured.groups)) if measured.groups else None,
        measured=measured,
    )


def raise_without_signal(report: ProbeReport) -> None:
    """Raise NoLearningSignal, with the first finding, if training has none."""
    if report.signal is Signal.NONE:
        first = report.findings[0]
        raise NoLearningSignal(f"{report.sentence} {first.seen}", hint=first.remedy or None)


def _signal(measured: Measured) -> Signal:
    noise = 0.0 if measured.noise is None else measured.noise.share
    if measured.stops is not None or not _differ(measured) or noise >= NOISE_ALONE:
        return Signal.NONE
    return Signal.WEAK if _few_differ(measured) or noise >= NOISE_WEAK else Signal.FOUND


def _differ(measured: Measured) -> bool:
    """True if the algorithm has rewards to compare."""
    return not rewards.equal(measured.rewards) if measured.across_groups else measured.num_differing > 0


def _few_differ(measured: Measured) -> bool:
    least = (1 - measured.max_equal_groups) * len(measured.groups)
    return not _differ(measured) or (not measured.across_groups and measured.num_differing < least)


def _sentence(signal: Signal, measured: Measured, findings: Sequence[ProbeFinding]) -> str:
    if signal is Signal.NONE:
        return f"Training on these examples has no signal: {findings[0].cause}."
    how = "a signal" if signal is Signal.FOUND else "a weak signal"
    why = "" if signal is Signal.FOUND else f"; {findings[0].cause}"
    count = f"{measured.num_differing} of {len(measured.groups)} groups have a difference in reward"
    return f"Training on these examples has {how}: {count}{why}."


def _findings(measured: Measured) -> Iterator[ProbeFinding]:
    """The most likely cause first; what ends a run at once hides the others."""
    if measured.stops is not None:
        yield ProbeFinding(cause=ProbeCause.LOST, seen=measured.stops, remedy=measured.lost_remedy or "")
        return
    if measured.truncated > MOSTLY_TRUNCATED:
        yield _truncation(measured)
    if _few_differ(measured):
        yield _equal_rewards(measured)
    if measured.noise is not None and measured.noise.share >= NOISE_NAMED:
        yield _noisy(measured.noise)
    if measured.max_truncated < measured.truncated <= MOSTLY_TRUNCATED:
        yield _truncation(measured)
    if sum(measured.left_out.values()) > LOST_NAMED * measured.num_rollouts and not _one_left_of_each(measured):
        yield _lost(measured)


def _truncation(measured: Measured) -> ProbeFinding:
    share, allowed = measured.truncated, measured.max_truncated
    return ProbeFinding(
        cause=ProbeCause.TRUNCATED,
        seen=f"{share:.0%} of the rollouts hit a token limit (healthy: at most {allowed:.0%}).",
        remedy=RAISE_LIMIT,
    )


def _lost(measured: Measured) -> ProbeFinding:
    causes = "; ".join(f"{count} x {cause}" for cause, count in measured.left_out.items())
    return ProbeFinding(
        cause=ProbeCause.LOST,
        seen=f"{sum(measured.left_out.values())} of {measured.num_rollouts} rollouts cannot be trained on: {causes}.",
        remedy=measured.lost_remedy or "",
    )


def _noisy(noise: Noise) -> ProbeFinding:
    seen = (
        f"{noise.share:.0%} of the differences within groups are the evaluator's own (healthy: below "
        f"{NOISE_NAMED:.0%}): {noise.scores} scores of the same output have a standard deviation of "
        f"{noise.deviation:.3g}."
    )
    number = scores_to_average(noise.share)
    remedy = "The score does not depend on the answer. " + _CHECK
    if number is not None:
        remedy = (
            f"Use a steadier evaluator (a judge at temperature 0, a rubric), or let it average {number} scores of each "
            f"answer; otherwise training takes about {1 / (1 - noise.share):.1f} times the rollouts: more generations."
        )
    return ProbeFinding(cause=ProbeCause.NOISE, seen=seen, remedy=remedy)


def _equal_rewards(measured: Measured) -> ProbeFinding:
    """Why all or nearly all groups have equal rewards."""
    if rewards.equal(measured.rewards):
        return _one_reward(measured)
    if _one_left_of_each(measured):
        return _lost(measured)
    if measured.num_differing == 0 and all(example.same_outputs for example in measured.groups):
        return ProbeFinding(
            cause=ProbeCause.SAME_ANSWERS,
            seen="All rollouts of an example gave the same output.",
            remedy="Let the model sample: a temperature of 1, no fixed seed, and no cache of answers.",
        )
    low, high = min(measured.rewards), max(measured.rewards)
    at_low, at_high = _equal_at(measured.groups, low), _equal_at(measured.groups, high)
    seen = (
        f"{_count(at_low)} always got the lowest reward ({low:g}), {_count(at_high)} the highest ({high:g}), and "
        f"{measured.num_differing} of {len(measured.groups)} differ "
        f"(healthy: at least {1 - measured.max_equal_groups:.0%})."
    )
    if measured.num_differing == 0 and at_low and at_high:
        between = "Add examples between the two kinds: sometimes solved and sometimes not. Partial credit makes such."
        return ProbeFinding(
            cause=ProbeCause.ALL_OR_NOTHING, seen=seen, remedy=f"{between} {_more_generations(measured)}"
        )
    if at_low >= at_high:
        return ProbeFinding(cause=ProbeCause.TOO_HARD, seen=seen, remedy=f"{_EASIER} {_more_generations(measured)}")
    return ProbeFinding(cause=ProbeCause.TOO_EASY, seen=seen, remedy=_HARDER)


def _one_left_of_each(measured: Measured) -> bool:
    """True if losses are why no group has two rewards to compare."""
    return bool(measured.left_out) and all(len(example.rewards) == 1 for example in measured.groups)


def _equal_at(groups: Sequence[ExampleResult], reward: float) -> int:
    return sum(rewards.equal([*group.rewards, reward]) for group in groups)


def _count(examples: int) -> str:
    return "1 example" if examples == 1 else f"{examples} examples"


def _one_reward(measured: Measured) -> ProbeFinding:
    """Tell hard and easy examples from a constant score, by answers that no model gave."""
    value, references = measured.rewards[0], measured.references
    seen = f"Every reward is {value:g}."
    if references is not None and rewards.equal([references.right, references.wrong]):
        seen += (
            f" The evaluator cannot tell the dataset's own answers (mean score {references.right:g}) from those of "
            f"other examples ({references.wrong:g})."
        )
        other = (
            "If it expects another form than that of the dataset's answers, the examples may be too hard or too easy."
        )
        return ProbeFinding(cause=ProbeCause.CONSTANT, seen=seen, remedy=f"{_CHECK} {other}")
    low, high = (0.0, 1.0) if references is None else (references.wrong, references.right)
    if references is not None:
        seen += f" The dataset's own answers score {references.right:g}, those of other examples {references.wrong:g}."
    check = "" if references is not None else f" If answers like these deserve another score: {_CHECK}"
    if abs(value - high) < abs(value - low) and (references is not None or value >= high):
        return ProbeFinding(cause=ProbeCause.TOO_EASY, seen=seen, remedy=_HARDER + check)
    if references is not None or value <= low:
        return ProbeFinding(
            cause=ProbeCause.TOO_HARD, seen=seen, remedy=f"{_EASIER} {_more_generations(measured)}{check}"
        )
    return ProbeFinding(cause=ProbeCause.CONSTANT, seen=seen, remedy=_CHECK)


def _more_generations(measured: Measured) -> str:
    most = measured.prospects[-1]
    return f"With {most.generations} generations, about {most.share:.0%} of the groups would have a difference."
