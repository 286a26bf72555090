"""The page with which `nat finetune --dry_run` ends."""

from collections.abc import Iterator

from nat.files import shown
from nat.finetuning.dry_run import FinetunePlan, PlannedStage
from nat.finetuning.verdict import MIN_DIFFERING
from nat.reports.text import labelled
from nat.sizing.memory import bytes_text, memory_rows

Row = tuple[str, str]


def plan_text(plan: FinetunePlan) -> str:
    """The plan on a page."""
    rows = list(_rows(plan))
    if plan.finished_epochs is not None:
        rows.insert(0, ("Goes on", f"after {plan.finished_epochs} finished epochs; what follows is the whole run"))
    rows.append(("Output", f"{shown(plan.finetuning.output_dir)}, where {bytes_text(plan.free_disk)} are free"))
    rows += [("Warning", text) for text in plan.warnings]
    return f"{labelled(rows)}\n\nNothing was trained. `--json` adds the resolved configuration."


def _rows(plan: FinetunePlan) -> Iterator[Row]:
    """What the phases have in common, and each by itself."""
    yield from (("LLM", f"{name}: {where}") for name, where in plan.llms.items())
    own, functions = plan.finetuning, ", ".join(plan.finetuning.target_functions)
    yield "Trained on", f"calls made in {functions}, to {own.target_model or 'any model'}"
    yield "Reward", own.reward_function.name if own.reward_function else "computed by the builder"
    for stage in plan.stages:
        yield from _stage(plan, stage)
    yield from _calls(plan)
    yield from _verdict(plan)


def _stage(plan: FinetunePlan, stage: PlannedStage) -> Iterator[Row]:
    if stage.phase:
        yield "Phase", stage.phase
    yield "Parts", f"{stage.trajectory_builder} → {stage.trainer_adapter}, run by {stage.trainer}"
    yield "Epochs", str(stage.num_epochs)
    if stage.rollouts_per_epoch is None:
        yield "Rollouts", "chosen by the builder"
    else:
        place = "" if (ray := plan.finetuning.rollouts) is None else f", in {ray.workers} processes on Ray ({ray.ray})"
        if plan.nodes:
            place += ": " + ", ".join(f"{number} on {node}" for node, number in plan.nodes.items())
        examples = f"{stage.rollouts_per_epoch} per epoch, from {plan.num_examples} examples"
        yield "Rollouts", f"{examples}, {plan.max_concurrency} at a time{place}"
    if (found := stage.forecast) is None:
        yield "Memory", "not known: the backend is elsewhere, or the builder chooses how much it plays"
        return
    steps = "1 optimizer step" if found.optimizer_steps == 1 else f"{found.optimizer_steps} optimizer steps"
    yield "Place", found.place
    yield "Update", f"{steps}, learning rate {found.learning_rate:.2g}, in {found.dtype} on {found.device}"
    if found.disk:
        more = f"{bytes_text(found.checkpoint)} more while a checkpoint is written"
        yield "Disk", f"{bytes_text(found.disk)} for checkpoints and the model, {more}; rollouts come on top"
    if not found.memory:
        yield "Memory", "not known: the model's configuration lacks the sizes of its layers"
        return
    yield from memory_rows(found.memory, found.available, chats=found.chats, row_tokens=found.row_tokens)
    yield "Time", "is said after the first epoch"


def _calls(plan: FinetunePlan) -> Iterator[Row]:
    """What all stages play together."""
    known = [
        stage.num_epochs * stage.rollouts_per_epoch for stage in plan.stages if stage.rollouts_per_epoch is not None
    ]
    validated = (plan.num_held_out or 0) * sum(stage.num_validations for stage in plan.stages)
    in_all = sum(known) + validated
    if known:
        held_out = f" and {validated:,} of validations" if validated else ""
        yield "In all", f"{in_all:,} rollouts: {sum(known):,} of epochs{held_out}"
    if not plan.judges:
        yield "Judge calls", "none: no evaluator names an LLM"
    elif known:
        yield "Judge calls", f"{in_all * len(plan.judges):,} (one per rollout by {', '.join(plan.judges)})"
    if (budget := plan.finetuning.budget) is not None:
        priced = f"calls of {', '.join(budget.prices)} have a price"
        yield "Budget", priced if budget.limit is None else f"ends before {budget.limit:g} is exceeded; {priced}"


def _verdict(plan: FinetunePlan) -> Iterator[Row]:
    if plan.num_held_out is None:
        yield "Held-out", "none (no verdict without a validation dataset)"
        return
    ends = "after each phase" if len(plan.stages) > 1 else "after"
    yield "Held-out", f"{plan.num_held_out} examples, before, every {plan.validation_interval} epochs, and {ends}"
    if plan.smallest_improvement is None:
        yield "Can show", f"nothing: a verdict takes at least {MIN_DIFFERING} held-out examples"
        return
    rise = f"a rise of the mean by +{plan.smallest_improvement:.2g} or more if no example gets worse"
    yield "Can show", f"for scores of 0 and 1, {rise}"
