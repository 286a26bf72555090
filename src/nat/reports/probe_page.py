"""The page of `nat probe`."""

from collections.abc import Sequence

from nat.finetuning.diagnosis.facts import Noise
from nat.finetuning.probe.records import ExampleResult, Interval, Measured, ProbeReport, Signal
from nat.reports.plan_page import proposal_rows, seconds_text
from nat.reports.text import labelled, printable, table
from nat.runs.plot import duration

_SHOWN_EXAMPLES = 4
"""Examples at each end of the table."""


def probe_page(report: ProbeReport) -> str:
    """The whole report; the model's text in it cannot control the terminal."""
    measured = report.measured
    played = f"{len(measured.examples)} of {measured.num_examples} examples, {measured.num_rollouts} rollouts"
    parts = [
        f"Probe of {measured.config_file}: {played}, nothing trained",
        labelled(_facts(report)),
        *((_examples(measured.examples), _prospects(report), _answers(measured)) if measured.rewards else ()),
        _verdict(report),
        *([labelled(proposal_rows(report.proposals))] if report.proposals else ()),
    ]
    return printable("\n\n".join(parts))


def _facts(report: ProbeReport) -> list[tuple[str, str]]:
    measured, metrics = report.measured, report.measured.metrics
    rows = [("LLM", f"{name}: {where}" if where else name) for name, where in measured.model.items()]
    rows += [("Warning", text) for text in measured.warnings]
    rows.append(
        ("Time", f"{measured.seconds_per_rollout:.2g} s per rollout, {duration(metrics['time/rollout'])} in all")
    )
    rows.append(("", f"{duration(report.seconds)} with loading and second scores; ended because {report.ending}"))
    if (epoch := report.epoch) is not None:
        parts = f"rollouts {seconds_text(epoch.rollouts)}, training {seconds_text(epoch.training)}"
        rows.append(("Epoch", f"about {seconds_text(epoch.total)} in a run: {parts}"))
    if "rollout/completion_tokens" in metrics:
        rows.append(("Tokens", _tokens(measured)))
    rows.append(("Calls", _calls(measured)))
    rows += [("Left out", f"{count} x {cause}") for cause, count in measured.left_out.items()]
    rows += [("", f"for example {each.error}") for each in measured.failures if each.error]
    if report.interval is not None:
        rows.append(("Reward", _reward(measured)))
        rows.append(("Groups", _groups(measured, report.interval)))
        rows.append(("Evaluator", _noise(measured.noise)))
    return rows


def _tokens(measured: Measured) -> str:
    sampled, prompt = (measured.metrics.get(f"rollout/{kind}_tokens", 0.0) for kind in ("completion", "prompt"))
    limit = f"{measured.truncated:.0%} of the rollouts hit a token limit"
    return f"{sampled:.0f} sampled per rollout (at most {measured.longest_answer}), {prompt:.0f} in prompts; {limit}"


def _calls(measured: Measured) -> str:
    metrics = measured.metrics
    lost = {
        "failed": metrics.get("rollout/failed_calls", 0.0) * measured.num_rollouts,
        "without log probabilities": metrics.get("drift/calls_without_logprobs", 0.0),
        "not sampled from the model's own distribution": metrics.get("drift/untrainable_calls", 0.0),
        "that do not continue the tokens of earlier answers": metrics.get("drift/broken_prefixes", 0.0),
    }
    counted = [f"{count:.0f} {text}" for text, count in lost.items() if round(count)]
    return "; ".join([f"{metrics.get('rollout/calls', 0.0):.1f} per rollout", *counted])


def _reward(measured: Measured) -> str:
    low, high = min(measured.rewards), max(measured.rewards)
    return f"{measured.reward}: mean {measured.metrics['reward/mean']:.3f}, from {low:g} to {high:g}"


def _groups(measured: Measured, interval: Interval) -> str:
    count, total = measured.num_differing, len(measured.groups)
    shares = f"{count / total:.0%}, 95% interval {interval[0]:.0%} to {interval[1]:.0%}"
    return f"{count} of {total} have a difference in reward ({shares})"


def _noise(noise: Noise | None) -> str:
    if noise is None:
        return "noise not measured: no two outputs of one example were scored again"
    if noise.deviation == 0:
        return f"no noise: each of {noise.outputs} outputs got the same score {noise.scores} times"
    spread = f"{noise.scores} scores of the same output have a standard deviation of {noise.deviation:.3g}"
    return f"{noise.share:.0%} of the differences within groups are its own noise ({spread})"


def _examples(examples: Sequence[ExampleResult]) -> str:
    """The hardest and the easiest examples."""
    rows = [_row(example) for example in examples]
    if (hidden := len(rows) - 2 * _SHOWN_EXAMPLES) > 1:
        rows[_SHOWN_EXAMPLES:-_SHOWN_EXAMPLES] = [(f"({hidden} between)", "", "", "", "")]
    return table(("Example", "Rollouts", "Reward", "Spread", ""), rows, left=5)


def _row(example: ExampleResult) -> tuple[str, ...]:
    values = ("-" if value is None else f"{value:.2f}" for value in (example.mean, example.spread))
    notes = {"left out": example.left_out, "hit a token limit": example.truncated}
    noted = ", ".join(f"{count} {text}" for text, count in notes.items() if count)
    return (example.id, str(len(example.rewards)), *values, noted)


def _prospects(report: ProbeReport) -> str:
    """What each number of generations would give."""
    marks = {report.measured.configured_generations: "in the YAML"}
    if report.signal is not Signal.NONE:
        marks[report.advised_generations] = "advised"
    rows = [
        (str(each.generations), f"{each.share:.0%}", f"{each.signal:.2f}", marks.get(each.generations, ""))
        for each in report.measured.prospects
    ]
    return table(("Generations", "Groups with a difference", "Signal per rollout", ""), rows, left=4)


def _answers(measured: Measured) -> str:
    shown = ((f"Reward {one.reward:g}", one.example_id, f"{one.question} → {one.output}") for one in measured.answers)
    return table(("Answer", "Example", "Input → output"), shown, left=3)


def _verdict(report: ProbeReport) -> str:
    lines = [report.sentence]
    for finding in report.findings:
        lines += [f"- {finding.title}: {finding.seen} (healthy: {finding.healthy}).", f"  → {finding.remedy}"]
    if report.signal is not Signal.NONE:
        configured = report.measured.configured_generations
        lines.append(
            f"Use num_generations: {report.advised_generations}"
            + (f" (the YAML has {configured})." if configured else ".")
        )
    return "\n".join(lines)
