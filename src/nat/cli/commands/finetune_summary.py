"""What `nat finetune` prints: the plan of a dry run, and the summary of a run."""

import json
from collections.abc import Iterable
from pathlib import Path

from nat.data_models.finetuning import ServedModel
from nat.eval.failures import remedy_of
from nat.finetuning.best_model import best_text
from nat.finetuning.dry_run import FinetunePlan
from nat.finetuning.runtime import RunResult
from nat.runs.plot import duration
from nat.runs.records import RunSummary
from nat.runs.rollouts import LeftOutCause

_TIMES = "\N{MULTIPLICATION SIGN}"


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
    """The verdict, what the run did, what failed, and where everything is."""
    summary, run_dir = result.summary, result.run_dir
    verdict = result.comparison.sentence if result.comparison else "No verdict: there was no validation dataset."
    rows = [("Next", summary.next_step)] if summary.next_step else []
    rows.append(("Trained", _trained(summary)))
    if summary.packed_tokens:
        rows.append(("Prefix sharing", _shared(summary)))
    if summary.broken_by:
        rows.append(("Split chats", _split_chats(summary)))
    if summary.failures:
        rows += _failed(summary, run_dir)
    rows.append(("Folder", str(run_dir)))
    if summary.plot is not None:
        rows.append(("Plot", str(run_dir / summary.plot)))
    if summary.model is not None:
        model = run_dir / summary.model
        rows += [("Model", str(model)), ("Use it", use_command(result.trained_llm, model, config_file))]
    if summary.best_model is not None:
        rows.append(("Best model", f"{run_dir / summary.best_model} ({summary.best})"))
    elif summary.best is not None and summary.best.epoch != summary.epochs:
        rows.append(("Best", best_text(summary.best, run_dir)))
    if result.served_model is not None:
        served = result.served_model
        rows += [("Model", str(served)), ("Use it", served_command(served, config_file))]
    return f"\n{verdict}\n\n{_table(rows)}"


def _trained(summary: RunSummary) -> str:
    epochs = "1 epoch" if summary.epochs == 1 else f"{summary.epochs} epochs"
    return f"{epochs} in {duration(summary.seconds)}, on {summary.tokens_trained:,} tokens that the model wrote"


def _shared(summary: RunSummary) -> str:
    """How often the learner would have computed the same beginnings of rows, and the most that can be saved."""
    ratio, ceiling = (summary.row_tokens / count for count in (summary.packed_tokens, summary.unique_tokens))
    return f"{ratio:.2f}{_TIMES} fewer tokens computed ({ceiling:.2f}{_TIMES} possible)"


def _split_chats(summary: RunSummary) -> str:
    """Each took up a history whose tokens were not those that had been sampled."""
    causes = ", ".join(f"{cause} {count}" for cause, count in summary.broken_by.items())
    return f"{sum(summary.broken_by.values())} calls did not go on with the tokens of their answers ({causes})"


def _failed(summary: RunSummary, run_dir: Path) -> list[tuple[str, str]]:
    """Counts by cause, each with an error; what to do about the commonest; and where the tracebacks are."""
    first = summary.failures[0]
    rows = [("Failed", f"{sum(each.count for each in summary.failures)} of {summary.rollouts:,} rollouts")]
    rows += [("", str(each)) for each in summary.failures]
    if LeftOutCause(first.cause).failure:
        rows.append(("", f"→ {remedy_of(first.cause, first.error)}"))
    return [*rows, ("Tracebacks", str(run_dir / (summary.failures_file or "")))]


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
