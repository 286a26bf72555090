"""The page with which `nat finetune --dry_run` ends."""

from collections.abc import Iterable, Iterator

from nat.finetuning.dry_run import PROBE_SECONDS, FinetunePlan
from nat.finetuning.proposals import Proposal
from nat.finetuning.verdict import MIN_DIFFERING
from nat.reports.text import labelled
from nat.runs.plot import duration
from nat.sizing.forecast import bytes_text, speed_text
from nat.sizing.memory import PARTS

Row = tuple[str, str]
_CELL = 18
"""Width of a column of the memory."""
_SHORT = 10.0
"""Seconds; shorter times get two digits."""


def plan_text(plan: FinetunePlan) -> str:
    """The plan on a page."""
    rows = [*_phases(plan), *_verdict(plan)] if plan.phases else [*_what(plan), *_work(plan), *_verdict(plan)]
    if plan.finished_epochs is not None:
        rows.insert(0, ("Goes on", f"after {plan.finished_epochs} finished epochs; what follows is the whole run"))
    rows.append(("Output", str(plan.output_dir)))
    rows += proposal_rows([each for own in plan.phases or [plan] for each in own.proposals])
    rows += [("Warning", text) for text in plan.warnings]
    return f"{labelled(rows)}\n\nNothing was trained. `--json` adds the resolved configuration."


def _phases(plan: FinetunePlan) -> Iterator[Row]:
    """What the phases have in common, and each by itself."""
    yield from _model(plan)
    for own in plan.phases:
        yield "Phase", f"{own.phase}"
        yield from _parts(own)
        yield from _update(own)
        yield from _work(own)


def _what(plan: FinetunePlan) -> Iterator[Row]:
    yield from _parts(plan)
    yield from _model(plan)
    yield from _update(plan)


def _work(plan: FinetunePlan) -> list[Row]:
    return [*_amounts(plan), *_memory(plan), *_time(plan)]


def _parts(plan: FinetunePlan) -> Iterator[Row]:
    yield "Parts", f"{plan.trajectory_builder} → {plan.trainer_adapter}, run by {plan.trainer}"


def _model(plan: FinetunePlan) -> Iterator[Row]:
    yield from (("LLM", f"{name}: {where}") for name, where in plan.llms.items())
    yield from (("Engine", f"{name}: {text}") for name, text in plan.advice.items())
    yield "Trained on", f"calls made in {', '.join(plan.target_functions)}, to {plan.target_model or 'any model'}"
    yield "Reward", plan.reward or "computed by the builder"


def _update(plan: FinetunePlan) -> Iterator[Row]:
    if (found := plan.forecast) is not None:
        steps = "1 optimizer step" if found.optimizer_steps == 1 else f"{found.optimizer_steps} optimizer steps"
        yield from (("Place", text) for text in found.places)
        yield "Update", f"{steps} with a learning rate of {found.learning_rate:.2g}, in {found.dtype} on {found.device}"


def _amounts(plan: FinetunePlan) -> Iterator[Row]:
    yield "Epochs", str(plan.num_epochs)
    count, load = plan.rollouts_per_epoch, plan.load
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
    least = "at least " if load.assumed else ""
    yield "LLM calls", f"{least}{_round(count * load.calls)} per epoch, {_round(in_all * load.calls)} in all"
    if plan.judges:
        each, calls = ", ".join(plan.judges), len(plan.judges)
        yield "Judge calls", f"{count * calls:,} per epoch, {in_all * calls:,} in all (one per rollout by {each})"
    else:
        yield "Judge calls", "none: no evaluator names an LLM"
    if (budget := plan.budget) is not None:
        priced = f"calls of {', '.join(budget.prices)} have a price"
        yield "Budget", priced if budget.limit is None else f"ends before {budget.limit:g} is exceeded; {priced}"
    tokens, sampled = _round(load.row_tokens), _round(load.sampled_tokens)
    yield "Tokens", f"{tokens} per rollout, {sampled} of them sampled: {load.basis}"


def _memory(plan: FinetunePlan) -> Iterator[Row]:
    if (found := plan.forecast) is None:
        yield "Memory", "not known: the backend is elsewhere, or the builder chooses how much it plays"
        return
    if not found.memory:
        yield "Memory", "not known: the model's configuration lacks the sizes of its layers"
        return
    yield "Memory", f"{'predicted, at the peak':<28}" + "".join(f"{each.title:>{_CELL}}" for each in found.memory)
    for part in dict.fromkeys([*PARTS, *(name for each in found.memory for name in each.parts)]):
        if any(part in each.parts for each in found.memory):
            yield "", _cells(part, [bytes_text(each.parts.get(part, 0)) for each in found.memory])
    yield "", _cells("together", [bytes_text(each.total) for each in found.memory])
    if any(each.host for each in found.memory):
        yield "", _cells("and in the host's memory", [bytes_text(each.host) for each in found.memory])
    for name, card in found.cards.items():
        fits = "does not fit" if name in found.full_cards else "fits"
        yield "", f"{name} trains, too: {bytes_text(card.needs)} of {bytes_text(card.room)}, which {fits}"
    where = "the GPU" if found.device == "cuda" else "the machine"
    if found.available is None or found.capacity is None:
        yield "", f"{where} does not tell how much it has"
        return
    planned = f"longest row here ({plan.load.longest_row:,} planned)"
    longest = [each.longest_row for each in found.memory]
    yield "", _cells(planned, ["does not fit" if most is None else f"{most:,} tokens" for most in longest])
    yield "", f"{where} has {bytes_text(found.capacity)}, of which {bytes_text(found.available)} are free for this"


def _cells(name: str, texts: list[str]) -> str:
    return f"{name:<28}" + "".join(f"{text:>{_CELL}}" for text in texts)


def _time(plan: FinetunePlan) -> Iterator[Row]:
    """Of an epoch and of all of them, as measured before, and the speed measured now."""
    seconds, load, found = plan.epoch_seconds, plan.load, plan.forecast
    if seconds is not None and load.seconds is not None:
        measured = "rollouts and training" if load.update_seconds is not None else "rollouts"
        parts = f"rollouts {seconds_text(seconds.rollouts)}, training {seconds_text(seconds.training)}"
        yield "Time", f"{seconds_text(seconds.total)} per epoch: {parts} ({measured} {load.basis})"
        in_all = plan.num_epochs * seconds.total + plan.held_out_rollouts * load.seconds
        yield "", f"{seconds_text(in_all)} in all, with validations and without loading and saving the model"
    elif load.assumed:
        yield "Time", "not known before a rollout was played: `nat probe` plays some, in at most three minutes"
    else:
        yield "Time", "not measured"
    if found is None or (speed := found.speed) is None:
        return
    yield "", f"measured here for {PROBE_SECONDS:.0f} s, {speed_text(speed)}"


def proposal_rows(proposals: Iterable[Proposal]) -> Iterator[Row]:
    """Each one once, with the YAML to paste below it; phases share some."""
    for each in dict.fromkeys(proposals):
        yield "Proposal", each.why
        yield "", f"paste  {each.settings}"


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


def seconds_text(seconds: float) -> str:
    """A duration, with two digits if it is short."""
    return f"{seconds:.2g} s" if seconds < _SHORT else duration(seconds)


def _round(count: float) -> str:
    return f"{count:,.0f}"
