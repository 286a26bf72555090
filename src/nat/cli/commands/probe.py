"""`nat probe`: play some examples with the untrained model, and tell whether training has a signal."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.eval import rollout_bar
from nat.cli.commands.finetune import run_config
from nat.cli.commands.options import (
    config_file_option,
    dataset_option,
    endpoint_option,
    endpoint_timeout_option,
    json_option,
    override_options,
    result_json_path_option,
)
from nat.files import write_text
from nat.finetuning.probe.records import ExampleResult, Interval, Measured, Noise, ProbeReport, Signal
from nat.finetuning.probe.run import ProbeOptions, ProbeResult, probe
from nat.finetuning.probe.verdict import raise_without_signal
from nat.runs.plot import duration
from nat.secrets import redact_json
from nat.wire.json import without_surrogates

SHOWN_EXAMPLES = 4
"""Examples at each end of the table."""


@click.command("probe")
@config_file_option
@dataset_option
@click.option(
    "--examples", type=click.IntRange(min=1), default=16, show_default=True, help="Examples to play, chosen at random."
)
@click.option(
    "--generations", type=click.IntRange(min=2), default=8, show_default=True, help="Rollouts of each example."
)
@click.option(
    "--rescores",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Times to score each output again, which measures the evaluator's noise.",
)
@click.option(
    "--reward", help="The evaluator whose score is the reward; default: that of `finetuning`, or the only one."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the report and all rollouts, as JSON.",
)
@result_json_path_option
@endpoint_option
@endpoint_timeout_option
@override_options
@json_option
@click.pass_context
def probe_command(
    context: click.Context,
    /,
    *,
    config_file: Path,
    examples: int,
    generations: int,
    rescores: int,
    reward: str | None,
    output: Path | None,
    as_json: bool,
    **_options: object,
) -> None:
    """Play some examples with the untrained model, and tell whether training has a signal.

    The exit code is 1 if it has none.
    """
    options = ProbeOptions(examples=examples, generations=generations, rescores=rescores, reward=reward)
    result = event_loop.run(probe(run_config(context, config_file), options, watch=rollout_bar), keep_stdout=as_json)
    if output is not None:
        write_text(output, record_text(result))
    click.echo(result.report.model_dump_json() if as_json else page(result.report))
    raise_without_signal(result.report)


def record_text(result: ProbeResult) -> str:
    """The report and the rollouts as JSON, without token ids and secrets."""
    rollouts = [record.model_dump(mode="json", exclude={"rows"}) for record in result.records]
    whole = {"report": result.report.model_dump(mode="json"), "rollouts": rollouts}
    return redact_json(json.dumps(without_surrogates(whole), ensure_ascii=False), indent=2) + "\n"


def page(report: ProbeReport) -> str:
    """The whole report on one page."""
    measured = report.measured
    played = f"{len(measured.examples)} of {measured.num_examples} examples, {measured.num_rollouts} rollouts"
    parts = [
        f"Probe of {measured.config_file}: {played}, nothing trained",
        _columns(_facts(report), gap="  "),
        *((_examples(measured.examples), _prospects(report), _answers(measured)) if measured.rewards else ()),
        _verdict(report),
    ]
    return "\n\n".join(parts)


def _facts(report: ProbeReport) -> list[tuple[str, str]]:
    measured, metrics = report.measured, report.measured.metrics
    rows = [("LLM", f"{name}: {where}" if where else name) for name, where in measured.model.items()]
    rows += [("Warning", text) for text in measured.warnings]
    rows.append(
        ("Time", f"{measured.seconds_per_rollout:.2g} s per rollout, {duration(metrics['time/rollout'])} in all")
    )
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
    if (hidden := len(rows) - 2 * SHOWN_EXAMPLES) > 1:
        rows[SHOWN_EXAMPLES:-SHOWN_EXAMPLES] = [(f"({hidden} between)", "", "", "", "")]
    return _columns([("Example", "Rollouts", "Reward", "Spread", ""), *rows], gap="   ")


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
    return _columns([("Generations", "Groups with a difference", "Signal per rollout", ""), *rows], gap="   ")


def _answers(measured: Measured) -> str:
    shown = ((f"Reward {one.reward:g}", one.example_id, f"{one.question} → {one.output}") for one in measured.answers)
    return _columns([("Answer", "Example", "Input → output"), *shown], gap="   ")


def _verdict(report: ProbeReport) -> str:
    lines = [report.sentence]
    for finding in report.findings:
        lines += [f"- {finding.seen}", *([f"  → {finding.remedy}"] if finding.remedy else [])]
    if report.signal is not Signal.NONE:
        configured = report.measured.configured_generations
        lines.append(
            f"Use num_generations: {report.advised_generations}"
            + (f" (the YAML has {configured})." if configured else ".")
        )
    return "\n".join(lines)


def _columns(rows: Sequence[tuple[str, ...]], *, gap: str) -> str:
    """The rows with the cells of a column below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
