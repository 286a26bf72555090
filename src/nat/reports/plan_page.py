"""The page with which `nat finetune --dry_run` ends."""

from collections.abc import Iterator

from nat.finetuning.dry_run import FinetunePlan
from nat.finetuning.verdict import MIN_DIFFERING
from nat.reports.text import labelled
from nat.sizing.memory import bytes_text, memory_rows

Row = tuple[str, str]


def plan_text(plan: FinetunePlan) -> str:
    """The plan on a page."""
    rows = list(_rows(plan))
    if plan.finished_epochs is not None:
        rows.insert(0, ("Goes on", f"after {plan.finished_epochs} finished epochs; what follows is the whole run"))
    rows.append(("Output", f"{plan.output_dir}, where {bytes_text(plan.free_disk)} are free"))
    rows += [("Warning", text) for text in plan.warnings]
    return f"{labelled(rows)}\n\nNothing was trained. `--json` adds the resolved configuration."


def _rows(plan: FinetunePlan) -> Iterator[Row]:
    """What the phases have in common, and each by itself; or the whole of a run without phases."""
    if not plan.phases:
        yield "Parts", f"{plan.trajectory_builder} → {plan.trainer_adapter}, run by {plan.trainer}"
    yield from (("LLM", f"{name}: {where}") for name, where in plan.llms.items())
    yield "Trained on", f"calls made in {', '.join(plan.target_functions)}, to {plan.target_model or 'any model'}"
    yield "Reward", plan.reward or "computed by the builder"
    for own in plan.phases or [plan]:
        if plan.phases:
            yield "Phase", f"{own.phase}"
            yield "Parts", f"{own.trajectory_builder} → {own.trainer_adapter}, run by {own.trainer}"
        if (found := own.forecast) is not None:
            steps = "1 optimizer step" if found.optimizer_steps == 1 else f"{found.optimizer_steps} optimizer steps"
            yield "Place", found.place
            yield "Update", f"{steps}, learning rate {found.learning_rate:.2g}, in {found.dtype} on {found.device}"
        yield from _amounts(own)
        yield from _memory(own)
    yield from _verdict(plan)


def _amounts(plan: FinetunePlan) -> Iterator[Row]:
    yield "Epochs", str(plan.num_epochs)
    count = plan.rollouts_per_epoch
    if count is None:
        yield "Rollouts", "chosen by the builder"
        return
    place = "" if (ray := plan.rollouts) is None else f", in {ray.workers} processes on Ray ({ray.ray})"
    if plan.nodes:
        place += ": " + ", ".join(f"{number} on {node}" for node, number in plan.nodes.items())
    examples = f"{count} per epoch, from {plan.num_examples} examples"
    yield "Rollouts", f"{examples}, {plan.max_concurrency} at a time{place}"
    in_all = plan.num_epochs * count + plan.held_out_rollouts
    held_out = f" and {plan.held_out_rollouts:,} of validations" if plan.num_held_out else ""
    yield "", f"{in_all:,} in all: {plan.num_epochs * count:,} of epochs{held_out}"
    if plan.judges:
        each, calls = ", ".join(plan.judges), len(plan.judges)
        yield "Judge calls", f"{count * calls:,} per epoch, {in_all * calls:,} in all (one per rollout by {each})"
    else:
        yield "Judge calls", "none: no evaluator names an LLM"
    if (budget := plan.budget) is not None:
        priced = f"calls of {', '.join(budget.prices)} have a price"
        yield "Budget", priced if budget.limit is None else f"ends before {budget.limit:g} is exceeded; {priced}"


def _memory(plan: FinetunePlan) -> Iterator[Row]:
    if (found := plan.forecast) is None:
        yield "Memory", "not known: the backend is elsewhere, or the builder chooses how much it plays"
        return
    if found.disk:
        more = f"{bytes_text(found.checkpoint)} more while a checkpoint is written"
        yield "Disk", f"{bytes_text(found.disk)} for checkpoints and the model, {more}; rollouts come on top"
    if not found.memory:
        yield "Memory", "not known: the model's configuration lacks the sizes of its layers"
        return
    yield from memory_rows(found.memory, found.available, chats=found.chats, row_tokens=found.row_tokens)
    yield "Time", "is said after the first epoch"


def _verdict(plan: FinetunePlan) -> Iterator[Row]:
    if plan.num_held_out is None:
        yield "Held-out", "none (no verdict without a validation dataset)"
        return
    ends = "after each phase" if plan.phases else "after"
    yield "Held-out", f"{plan.num_held_out} examples, before, every {plan.validation_interval} epochs, and {ends}"
    if plan.smallest_improvement is None:
        yield "Can show", f"nothing: a verdict takes at least {MIN_DIFFERING} held-out examples"
        return
    changes = "more than the examples can show"
    if plan.smallest_with_changes is not None:
        changes = f"+{plan.smallest_with_changes:.2g}"
    yield (
        "Can show",
        (
            f"for scores of 0 and 1, a rise of the mean by +{plan.smallest_improvement:.2g} or more if no example gets "
            f"worse; {changes} if half of them change for better or worse"
        ),
    )
