"""`nat probe`: play some examples with the untrained model, and tell whether training has a signal."""

import json
from collections.abc import Iterator, Sequence
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
from nat.finetuning.probe.records import ExampleResult, Measured, ProbeReport, Signal
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
    "-O",
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
    result = event_loop.run(probe(run_config(context, config_file), options, watch=rollout_bar))
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
    parts = [
        _head(measured),
        _columns(_facts(report), gap="  "),
        "\n".join(_examples(measured.examples)),
        "\n".join(_generations(report)),
        "\n".join(_verdict(report)),
    ]
    return "\n\n".join(filter(None, parts))


def _head(measured: Measured) -> str:
    played, whole = len(measured.examples), measured.num_examples
    return (
        f"Probe of {measured.config_file}: {played} of {whole} examples, {measured.num_rollouts} rollouts, no training"
    )


def _facts(report: ProbeReport) -> list[tuple[str, str]]:
    measured = report.measured
    metrics = measured.metrics
    rows = [("LLM", f"{name}: {where}") for name, where in measured.model.items()]
    rows += [("Warning", text) for text in measured.warnings]
    seconds = f"{measured.seconds_per_rollout:.2g} s each, {duration(metrics['time/rollout'])} in all"
    rows.append(("Time", seconds))
    if "rollout/completion_tokens" in metrics:
        sampled, prompt = metrics["rollout/completion_tokens"], metrics.get("rollout/prompt_tokens", 0.0)
        rows.append(
            (
                "Tokens",
                f"{sampled:.0f} sampled per rollout (at most {measured.longest_answer}), {prompt:.0f} in prompts; "
                f"{measured.truncated:.0%} of the rollouts hit a token limit",
            )
        )
    rows.append(("Calls", _calls(measured)))
    rows += [("Left out", f"{count} x {cause}") for cause, count in measured.left_out.items()]
    rows += [("", f"e.g. {each.error}") for each in measured.failures if each.error]
    if measured.rewards:
        low, high = min(measured.rewards), max(measured.rewards)
        mean = f"mean {metrics['reward/mean']:.3f}, from {low:g} to {high:g}"
        rows.append(("Reward", f"{measured.reward}: {mean}"))
    if report.interval is not None:
        rows.append(("Groups", _groups(report)))
    rows.append(("Evaluator", _noise(measured)))
    return rows


def _calls(measured: Measured) -> str:
    metrics = measured.metrics
    parts = [f"{metrics.get('rollout/calls', 0.0):.1f} per rollout"]
    named = {
        "rollout/failed_calls": ("failed", measured.num_rollouts),
        "drift/calls_without_logprobs": ("without log probabilities", 1),
        "drift/untrainable_calls": ("not sampled from the model's own distribution", 1),
        "drift/broken_prefixes": ("that do not continue the tokens of earlier answers", 1),
    }
    for name, (text, times) in named.items():
        if count := round(metrics.get(name, 0.0) * times):
            parts.append(f"{count} {text}")
    return "; ".join(parts)


def _groups(report: ProbeReport) -> str:
    measured = report.measured
    assert report.interval is not None, "there are groups"
    low, high = report.interval
    count, total = measured.num_differing, len(measured.groups)
    return f"{count} of {total} have a difference in reward: {count / total:.0%} (95% interval {low:.0%} to {high:.0%})"


def _noise(measured: Measured) -> str:
    noise = measured.noise
    if noise is None:
        return "its noise is not known: no outputs of one example could be compared"
    if noise.share == 0:
        return f"no noise: {noise.outputs} outputs got the same score {noise.scores} times"
    return (
        f"{noise.share:.0%} of the differences within groups are its own noise: {noise.scores} scores of the same output "
        f"have a standard deviation of {noise.deviation:.3g}"
    )


def _examples(examples: Sequence[ExampleResult]) -> Iterator[str]:
    """The hardest and the easiest examples."""
    if not any(example.rewards for example in examples):
        return
    rows = [("Example", "Rollouts", "Reward", "Spread", "")]
    hidden = len(examples) - 2 * SHOWN_EXAMPLES
    shown = [*examples[:SHOWN_EXAMPLES], None, *examples[-SHOWN_EXAMPLES:]] if hidden > 1 else [*examples]
    for example in shown:
        if example is None:
            rows.append((f"({hidden} more)", "", "", "", ""))
        else:
            rows.append(_row(example))
    yield _columns(rows, gap="   ")


def _row(example: ExampleResult) -> tuple[str, ...]:
    notes = {"left out": example.left_out, "truncated": example.truncated}
    return (
        example.id,
        str(len(example.rewards)),
        "-" if example.mean is None else f"{example.mean:.2f}",
        "-" if example.spread is None else f"{example.spread:.2f}",
        ", ".join(f"{count} {name}" for name, count in notes.items() if count),
    )


def _generations(report: ProbeReport) -> Iterator[str]:
    """What each number of generations would give, the advised one marked."""
    if not report.measured.prospects:
        return
    rows = [("Generations", "Groups with a difference", "Signal per rollout", "")]
    for prospect in report.measured.prospects:
        notes = []
        if prospect.generations == report.advised_generations:
            notes.append("advised")
        if prospect.generations == report.measured.configured_generations:
            notes.append("configured")
        number = str(prospect.generations)
        rows.append((number, f"{prospect.share:.0%}", f"{prospect.signal:.2f}", ", ".join(notes)))
    yield _columns(rows, gap="   ")


def _verdict(report: ProbeReport) -> Iterator[str]:
    yield report.sentence
    for finding in report.findings:
        yield f"- {finding.seen}"
        if finding.remedy:
            yield f"  → {finding.remedy}"
    if report.signal is not Signal.NONE:
        configured, advised = report.measured.configured_generations, report.advised_generations
        yield f"Use num_generations: {advised}" + (f" (the YAML has {configured})." if configured else ".")
    for answer in report.measured.answers:
        yield f"Reward {answer.reward:g}, example {answer.example_id}: {answer.question!r} → {answer.output!r}"


def _columns(rows: Sequence[tuple[str, ...]], *, gap: str) -> str:
    """The rows with the cells of a column below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
