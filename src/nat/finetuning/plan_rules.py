"""Settings of a run that do not go together: each rule once, as a condition and what to say where it holds. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence

from nat.config.components import judges_of
from nat.config.defaults import missing_components
from nat.data_models.config import Config
from nat.data_models.evaluate_runtime import Examples
from nat.data_models.function import EmptyFunctionConfig
from nat.errors import did_you_mean, one_of
from nat.eval.dataset import copies
from nat.finetuning.interfaces.trainer_adapter import Recipe
from nat.finetuning.sampling import block_finding
from nat.finetuning.stage import Stage, students_of
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.wire.sampling import Sampling, read_sampling, replaced, target_names

Rule = tuple[object, str]
"""Whether it holds, and the message."""


def found(rules: Iterable[Rule]) -> list[str]:
    """The messages of the rules that hold, each once."""
    return list(dict.fromkeys(message for holds, message in rules if holds))


def refusals(config: Config, stages: Sequence[Stage], *, held_out: bool) -> Iterator[Rule]:
    """What keeps a run from starting, by keys of the YAML; the run's own settings are in `finetuning`."""
    own, given, llms = config.finetuning, config.finetuning.run_configuration, config.llms
    endpoint = None if given is None else given.endpoint
    yield from ((True, text) for text in missing_components(config))
    trained = {name for stage in stages for name in stage.students}
    for name, evaluator in config.eval.evaluators.items():
        for judge in sorted(judges_of(evaluator) & trained):
            yield (
                True,
                f"eval.evaluators.{name}: its judge '{judge}' is the model that is trained, so the scores would change "
                "with each update. Name another key of `llms`; it may be a second one with the same model",
            )
    yield (
        isinstance(config.workflow, EmptyFunctionConfig)
        and endpoint is None
        and (held_out or any(stage.plays for stage in stages)),
        "workflow: this section is missing, so there is no agent to play; `workflow: {_type: …}` is one",
    )
    yield (
        own.rollouts is not None and endpoint is not None,
        "finetuning.rollouts: rollouts are played at --endpoint; leave out one of the two",
    )
    for stage in stages:
        yield from _of_stage(stage, stages[0], config, held_out=held_out)
    yield (
        own.early_stopping is not None and not held_out,
        "finetuning.early_stopping: it watches the held-out reward, but there is no validation dataset",
    )
    yield (
        own.max_staleness and own.export_best and not held_out,
        "finetuning.export_best: without a validation dataset, no weights have a score of their own when "
        "max_staleness is above 0: the next weights are trained while they play. Give --validation_dataset",
    )
    for name in () if own.budget is None else own.budget.prices:
        yield (
            name not in llms,
            f"finetuning.budget.prices: '{name}' is not under llms.{did_you_mean(name, llms)} There: {one_of(llms)}.",
        )
    for name in students_of(stages):
        yield (
            own.max_staleness and name in llms and llms[name].waits_for_updates,
            f"finetuning.max_staleness: {own.max_staleness}, but llms.{name} answers no request while it trains, so no "
            "epoch is played ahead. Set max_staleness to 0, or engine: vllm of the LLM",
        )


def _of_stage(stage: Stage, first: Stage, config: Config, *, held_out: bool) -> Iterator[Rule]:
    own, relative, evaluators = stage.finetuning, stage.reward_compares, config.eval.evaluators
    name = None if own.reward_function is None else own.reward_function.name
    yield (
        name is None and (held_out or stage.num_generations is not None),
        f"finetuning.reward_function: not set, so no rollout has a reward. Evaluators: {one_of(evaluators)}",
    )
    for key, sampling in _untrainable(stage, config).items():
        yield True, block_finding(key, sampling)
    yield (
        relative and stage.num_generations == 1,
        f"trajectory_builders.{own.trajectory_builder}.num_generations: 1, but eval.evaluators.{name} compares the "
        "generations of an example with each other; it takes 2 at least, and 8 are usual",
    )
    yield (
        relative and own.curriculum_learning.enabled,
        "finetuning.curriculum_learning: it puts examples with a high mean reward first, but the scores of "
        f"eval.evaluators.{name} compare generations, so their mean does not say how hard an example is. "
        "Set enabled: false",
    )
    yield (
        relative and own.export_best and not held_out,
        f"finetuning.export_best: the scores of eval.evaluators.{name} compare generations of the same weights, so "
        "without a validation dataset no weights are the best. Give --validation_dataset",
    )
    if own.phase is not None:
        yield (
            own.curriculum_learning.enabled and not stage.plays,
            f"{stage.place}: curriculum_learning orders examples by the rewards of rollouts, and "
            f"{stage.type_of('trajectory_builder')} plays none; set it in the phases that play",
        )
        (was, trained), (now, trains) = (
            (each.type_of("trainer_adapter"), ", ".join(each.students) or "its model") for each in (first, stage)
        )
        yield (
            (was, trained) != (now, trains),
            f"{stage.place}.trainer_adapter: trains {trains} by {now}, but the phase '{first.finetuning.phase}' trains "
            f"{trained} by {was}; phases train one model",
        )


def _untrainable(stage: Stage, config: Config) -> dict[str, Sampling]:
    """How the LLM blocks that `target_model` selects, by key or model name, sample what cannot be trained on.

    Without `target_model`, blocks are reported only if none of them is trainable.
    """
    target, own = stage.finetuning.target_model, stage.finetuning.sampling_in_training
    chosen = {}
    for key, llm in config.llms.items() if stage.builder is None or stage.builder.gives == "samples" else ():
        block = llm.model_dump()
        if target is None or target in {key, block.get("model_name")}:
            fields = {**block, **(block.get("extra_body") or {})}
            chosen[key] = read_sampling(fields if own is None else fields | replaced(fields, own.temperature))
    untrainable = {key: sampling for key, sampling in chosen.items() if not sampling.trainable}
    return untrainable if target is not None or len(untrainable) == len(chosen) else {}


def recipe_refusals(stage: Stage, recipe: Recipe) -> Iterator[Rule]:
    """Why an algorithm cannot train the stage."""
    yield (
        recipe.only_samples and not stage.plays,
        f"the algorithm of {stage.finetuning.trainer_adapter} trains what the model has sampled, and texts from a file "
        "are not; choose sft, dpo, kto or rft",
    )


def recipe_warnings(stage: Stage, recipe: Recipe) -> Iterator[Rule]:
    """Likely problems of the stage with its algorithm, in whole sentences."""
    yield (
        stage.reward_compares and recipe.compares == "batch",
        "The reward compares generations of one example, and the algorithm compares the rewards of all examples, "
        "which says nothing: choose one that compares inside groups, such as grpo.",
    )
    compared = "a rollout is compared with others of its example alone, and it has none, so nothing can be learned"
    if stage.compares_examples:
        compared = "rollouts are compared across all examples, so those of easy examples count as good answers"
    yield (
        stage.num_generations == 1 and recipe.compares == "group",
        f"trajectory_builders.{stage.finetuning.trajectory_builder}.num_generations is 1: {compared}. Set it to 8.",
    )


def warnings(config: Config, stages: Sequence[Stage], *, held_out: bool) -> Iterator[Rule]:
    """Likely mistakes in the settings, in whole sentences."""
    own, given, llms = config.finetuning, config.finetuning.run_configuration, config.llms
    for name in students_of(stages):
        yield (
            name in llms and llms[name].model_dump().get("max_tokens", 1) is None,
            f"llms.{name}.max_tokens is not set: an answer may fill the rest of the model's context, which takes long "
            "and is seldom right. Set it to the longest answer that you want, unless the agent's calls limit their "
            "answers.",
        )
    yield (
        not held_out and any(stage.reward_compares for stage in stages),
        "The reward compares generations with each other, so it does not rise while the model gets better.",
    )
    if given is None or given.endpoint is None:
        yield from unknown_targets(config)
    else:
        yield (
            True,
            f"Rollouts run at {given.endpoint}: serve the same YAML there, with LLMs at the base_url of the "
            "training server that this YAML has; changes of the workflow in this YAML have no effect.",
        )
    yield not held_out, "There is no validation dataset, so the run cannot tell whether the model got better."
    yield (
        not held_out and own.max_staleness,
        "It keeps no best weights either: with max_staleness, an epoch's rewards measure weights that its update has "
        "replaced.",
    )


def unknown_targets(config: Config) -> Iterator[Rule]:
    """Warnings only: code can name a function by `push_active_function`, and ask for a model that the YAML has not."""
    known = {WHOLE_WORKFLOW, *config.functions}
    for name in config.finetuning.target_functions:
        yield (
            name not in known,
            f"finetuning.target_functions: '{name}' is not under `functions`."
            f"{did_you_mean(name, {*known, config.workflow.type})} Known are: {one_of(known)}. "
            "Nothing is trained unless the workflow's code pushes a function of that name.",
        )
    if (target := config.finetuning.target_model) is not None:
        blocks = [llm.model_dump() for llm in config.llms.values()]
        models = {str(block[key]) for block in blocks for key in ("model_name", "model") if block.get(key)}
        of_adapters = str([adapter.model_dump() for adapter in config.trainer_adapters.values()])
        yield (
            not target_names(target) <= {*config.llms, *models} and repr(target) not in of_adapters,
            f"finetuning.target_model: '{target}' is not under `llms`.{did_you_mean(target, {*config.llms, *models})} "
            f"Known are: {one_of(config.llms)}. Nothing is trained unless the workflow calls a model of that name.",
        )


def example_warnings(training: Examples, held_out: Examples) -> Iterator[Rule]:
    """Likely mistakes in the held-out examples, in whole sentences."""
    shared, repeated = num_shared(training, held_out), len(copies(held_out.items))
    total = len(held_out.items)
    yield (
        shared,
        f"{shared} held-out examples are in the training dataset, too: on these, the verdict cannot tell learning from "
        "memorising. Leave them out of one of the two.",
    )
    yield (
        repeated,
        f"{repeated} of {total} held-out examples repeat others, so the verdict counts {total - repeated}: copies are "
        "no further evidence. Leave them out, or replace them by other ones.",
    )


def num_shared(training: Examples, held_out: Examples) -> int:
    """How many held-out examples are training examples too, by their content.

    Where most training examples share their content with another one, as in games that all begin alike, the id
    distinguishes them (it seeds their randomness), and both must be equal.
    """
    known, asked = _contents(training), _contents(held_out)
    contents = {content for _, content in known}
    if 2 * len(contents) < len(known):
        return len(set(known) & set(asked))
    return sum(content in contents for _, content in asked)


def _contents(examples: Examples) -> list[tuple[str, str]]:
    """Id and content of each example. The content is the workflow's input, or the whole row without its id."""
    contents, dataset = [], examples.dataset
    for item in examples.items:
        content = item.input_obj
        if dataset.structure.disable:
            content = {key: value for key, value in item.full_dataset_entry.items() if key != dataset.id_key}
        contents.append((str(item.id), json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)))
    return contents
