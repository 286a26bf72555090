"""Propose values of settings from what rollouts, epochs and the backend have shown; never from an assumption. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from nat.finetuning.diagnosis.conditions_of_updates import few_steps
from nat.finetuning.plan import Plan
from nat.finetuning.stage import Stage
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilderConfig
from nat.runs.records import Phase
from nat.sizing.forecast import TrainingForecast
from nat.sizing.load import RolloutLoad

_ROOM, _SPARE = 2, 4
"""`max_tokens` in lengths of the longest answer: what is proposed, since answers may grow, and what is too much."""
_FASTER = 1.5
"""Times as many tokens per second that twice as many chats must give."""
_FEWEST, _MOST = 8, 64
"""Groups with a difference in an epoch: common practice are optimizer steps of 8 to 16 groups, and with more than four
steps the later ones train on old answers."""


@dataclass(frozen=True)
class Proposal:
    """A value of a setting."""

    why: str
    """What was seen, and where."""
    settings: str
    """The YAML to paste."""


def proposals(plan: Plan, stage: Stage, load: RolloutLoad, forecast: TrainingForecast | None) -> list[Proposal]:
    """For answers and concurrency, and in a run without phases for examples and epochs; none before any rollout."""
    if load.assumed:
        return []
    found = [*_max_tokens(plan, load), *_concurrency(plan, stage, forecast)]
    return found if stage.finetuning.phase else [*found, *_examples(plan, stage, load), *_epochs(stage, load, forecast)]


def _max_tokens(plan: Plan, load: RolloutLoad) -> Iterator[Proposal]:
    llms, longest = plan.config.llms, load.longest_answer
    name = plan.trained_llm or plan.finetuning.target_model or (next(iter(llms)) if len(llms) == 1 else None)
    if longest is None or name not in llms:
        return
    now = llms[name].model_dump().get("max_tokens", 0)
    if now is None or now >= _SPARE * longest:
        seen = f"the longest answer of {load.rollouts} rollouts {load.basis} took {longest} tokens"
        why = f"llms.{name}.max_tokens is {now or 'not set'}: {seen}; {_ROOM * longest} leave as much room again"
        yield Proposal(why, f"llms: {{{name}: {{max_tokens: {_ROOM * longest}}}}}")


def _concurrency(plan: Plan, stage: Stage, forecast: TrainingForecast | None) -> Iterator[Proposal]:
    now, speed = plan.config.eval.general.max_concurrency, None if forecast is None else forecast.speed
    if speed is None or speed.chats != now or plan.num_rollouts(stage)[Phase.TRAIN] < 2 * now:
        return
    faster = 2 * speed.step_seconds / speed.doubled_step_seconds if speed.doubled_step_seconds else 0
    if faster >= _FASTER:
        seen = f"{2 * now} chats at a time sampled {faster:.1f} times as many tokens per second as {now}"
        why = (
            f"eval.general.max_concurrency is {now}: {seen}, measured here with prompts of {speed.prompt_tokens} tokens"
        )
        yield Proposal(why, f"eval: {{general: {{max_concurrency: {2 * now}}}}}")


def _examples(plan: Plan, stage: Stage, load: RolloutLoad) -> Iterator[Proposal]:
    if not load.differing or not isinstance(stage.builder, EvalTrajectoryBuilderConfig):
        return
    now, share = stage.builder.examples_per_epoch or plan.num_examples, load.differing / load.groups
    wanted = min(plan.num_examples, ceil(min(max(share * now, _FEWEST), _MOST) / share))
    if wanted != now and not _FEWEST <= share * now <= _MOST:
        seen = f"{load.differing} of {load.groups} groups {load.basis} had a difference in reward"
        teach = f"about {share * now:.0f} of {now} would teach, and {share * wanted:.0f} of {wanted}"
        why = f"an epoch plays {now} examples: {seen}, so {teach}"
        yield Proposal(
            why, f"trajectory_builders: {{{stage.finetuning.trajectory_builder}: {{examples_per_epoch: {wanted}}}}}"
        )


def _epochs(stage: Stage, load: RolloutLoad, forecast: TrainingForecast | None) -> Iterator[Proposal]:
    now, steps, fewest = stage.finetuning.num_epochs, forecast.optimizer_steps if forecast else 0, int(few_steps.bound)
    if steps and now * steps < fewest:
        why = f"{now * steps} optimizer steps in all; fewer than {fewest} rarely show a gain"
        yield Proposal(f"finetuning.num_epochs is {now}: {why}", f"finetuning: {{num_epochs: {ceil(fewest / steps)}}}")
    elif load.rising >= now:
        why = f"the reward still rose in the last third of {load.rising} epochs, {load.basis}"
        yield Proposal(f"finetuning.num_epochs is {now}: {why}", f"finetuning: {{num_epochs: {2 * load.rising}}}")
