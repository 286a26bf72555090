"""What `nat finetune` prints: the plan of a dry run, and the summary of a run."""

import json
from collections.abc import Iterable
from pathlib import Path

from nat.data_models.served_model import ServedModel
from nat.finetuning.dry_run import FinetunePlan
from nat.finetuning.runtime import RunResult
from nat.finetuning.verdict import Comparison
from nat.runs.records import RunSummary


def plan_text(plan: FinetunePlan) -> str:
    """The plan in lines, then the resolved configuration."""
    per_epoch = "as many as the builder starts" if plan.rollouts_per_epoch is None else str(plan.rollouts_per_epoch)
    held_out = "none (no verdict without a validation dataset)"
    if plan.num_held_out is not None:
        held_out = f"{plan.num_held_out} examples, before, every {plan.validation_interval} epochs, and after"
    rows = [
        ("Parts", f"{plan.trajectory_builder} → {plan.trainer_adapter}, run by {plan.trainer}"),
        *(("LLM", f"{name}: {where}") for name, where in plan.llms.items()),
        ("Trained on", f"calls made in {', '.join(plan.target_functions)}, to {plan.target_model or 'any model'}"),
        ("Reward", plan.reward or "the builder's own"),
        ("Epochs", str(plan.num_epochs)),
        ("Rollouts", f"{per_epoch} per epoch, from {plan.num_examples} examples, {plan.max_concurrency} at a time"),
        ("Held-out", held_out),
        ("Output", str(plan.output_dir)),
        *(("Warning", text) for text in plan.warnings),
    ]
    return f"{_table(rows)}\n\nResolved configuration:\n\n{plan.config_text.rstrip()}\n\nNothing was trained."


def summary_text(result: RunResult, config_file: Path) -> str:
    """The verdict, and where everything is."""
    summary, run_dir = result.summary, result.run_dir
    rows = [("Trained", f"{summary.epochs} epochs, {summary.tokens_trained} tokens, {summary.seconds:.0f} s")]
    if summary.packed_tokens:
        rows.append(("Shared", _shared(summary)))
    if summary.broken_by:
        rows.append(("New rows", _new_rows(summary)))
    if result.comparison is not None:
        rows += _held_out_rows(result.comparison)
    if summary.plot is not None:
        rows.append(("Plot", str(run_dir / summary.plot)))
    rows += [
        ("Metrics", str(run_dir / "training_metrics.jsonl")),
        ("Trajectories", str(run_dir / "trajectories")),
        ("Summary", str(run_dir / "summary.json")),
    ]
    if summary.model is not None:
        model = run_dir / summary.model
        rows += [("Model", str(model)), ("Use it", use_command(result.trained_llm, model, config_file))]
    if result.served_model is not None:
        served = result.served_model
        rows += [("Model", str(served)), ("Use it", served_command(served, config_file))]
    return "\n" + _table(rows)


def _shared(summary: RunSummary) -> str:
    """How often what rows have in common was not computed again, and the ceiling of it."""
    ratio, ceiling = (summary.row_tokens / count for count in (summary.packed_tokens, summary.unique_tokens))
    return f"{summary.row_tokens:,} tokens in rows, {ratio:.2f} for each that was computed (at most {ceiling:.2f})"


def _new_rows(summary: RunSummary) -> str:
    """Each took up a history whose tokens were not those that had been sampled."""
    causes = ", ".join(f"{cause} {count}" for cause, count in summary.broken_by.items())
    return f"{sum(summary.broken_by.values())} calls did not go on with the tokens of their answers ({causes})"


def _held_out_rows(comparison: Comparison) -> list[tuple[str, str]]:
    """Scores between 0 and 1 read best as percentages; others stay numbers."""
    form = ".1%" if all(0 <= score <= 1 for score in (comparison.before, comparison.after)) else ".3f"
    before, after = (format(score, form) for score in (comparison.before, comparison.after))
    difference, low, high = (format(value, f"+{form}") for value in (comparison.difference, *comparison.interval))
    return [
        ("Held-out", f"{before} → {after} on the same {comparison.num_examples} examples"),
        ("Difference", f"{difference} ({comparison.confidence:.0%} interval {low} to {high})"),
        ("Verdict", comparison.sentence),
    ]


def use_command(llm: str | None, model: Path, config_file: Path) -> str:
    """The command that runs the same workflow with the trained model."""
    key = llm or "<name>"
    return f"nat run --config_file={config_file} -o llms.{key}.model {model} --input '…'"


def served_command(served: ServedModel, config_file: Path) -> str:
    """The command that runs the same workflow with the model that its server keeps."""
    options = "".join(f" -o {key} {value}" for key, value in served.overrides)
    return f"nat run --config_file={config_file}{options} --input '…'"


def result_record(result: RunResult) -> str:
    """`summary.json` on one line, with the run's folder."""
    return json.dumps({**result.summary.model_dump(mode="json"), "run_dir": str(result.run_dir)})


def _table(rows: Iterable[tuple[str, str]]) -> str:
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)
