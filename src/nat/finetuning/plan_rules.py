"""Settings of a run that do not go together: each rule once, between the values that it is about. Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from nat.config.components import judges_of
from nat.config.defaults import missing_components
from nat.data_models.config import Config
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.finetuning import FinetuneRunConfig
from nat.data_models.function import EmptyFunctionConfig
from nat.data_models.llm import LLMBaseConfig
from nat.errors import ConfigError, did_you_mean, one_of
from nat.finetuning.interfaces.trainer_adapter import Recipe
from nat.finetuning.sampling import block_finding, block_sampling
from nat.finetuning.stage import Stage, students_of
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.wire.sampling import target_names


def check_settings(config: Config, given: FinetuneRunConfig, stages: Sequence[Stage]) -> None:
    """Raise one ConfigError with everything that keeps the run from starting."""
    source = str(given.config_file) if isinstance(given.config_file, Path) else "configuration"
    if not config.finetuning.enabled:
        raise ConfigError(
            ["finetuning.enabled: Finetuning is not enabled in the provided configuration."],
            source=source,
            hint="set `finetuning.enabled: true`",
        )
    findings = settings_findings(config, stages, held_out=given.validation_dataset is not None)
    if config.finetuning.rollouts is not None and given.endpoint is not None:
        findings.append("finetuning.rollouts: rollouts are played at --endpoint; leave out one of the two")
    if findings:
        raise ConfigError(findings, source=source)


def settings_findings(config: Config, stages: Sequence[Stage], *, held_out: bool) -> list[str]:
    """Settings that do not go together, by their keys in the YAML."""
    finetuning, findings = config.finetuning, [*missing_components(config), *judge_findings(config, stages)]
    endpoint = None if finetuning.run_configuration is None else finetuning.run_configuration.endpoint
    plays = held_out or any(stage.builder is None or stage.builder.plays for stage in stages)
    if plays and endpoint is None and isinstance(config.workflow, EmptyFunctionConfig):
        findings.append(
            "workflow: this section is missing, so there is no agent to play; `workflow: {_type: …}` is one"
        )
    for stage in stages:
        findings += _reward_findings(stage, config.eval.evaluators, held_out=held_out)
        findings += sampling_findings(stage, config.llms)
        findings += _relative_findings(stage, held_out=held_out)
    findings = [*dict.fromkeys(findings), *phase_findings(stages)]
    if finetuning.early_stopping is not None and not held_out:
        findings.append("finetuning.early_stopping: it watches the held-out reward, but there is no validation dataset")
    for name in () if finetuning.budget is None else finetuning.budget.prices:
        if name not in config.llms:
            near = did_you_mean(name, config.llms)
            findings.append(
                f"finetuning.budget.prices: '{name}' is not under llms.{near} There: {one_of(config.llms)}."
            )
    if finetuning.max_staleness and finetuning.export_best and not held_out:
        findings.append(
            "finetuning.export_best: without a validation dataset, no weights have a score of their own when "
            "max_staleness is above 0: the next weights are trained while they play. Give --validation_dataset"
        )
    waiting = [name for name in students_of(stages) if name in config.llms and config.llms[name].waits_for_updates]
    if finetuning.max_staleness and waiting:
        findings.append(
            f"finetuning.max_staleness: {finetuning.max_staleness}, but llms.{waiting[0]} answers no request while it "
            "trains, so no epoch is played ahead. Set max_staleness to 0, or engine: vllm of the LLM"
        )
    return findings


def judge_findings(config: Config, stages: Sequence[Stage]) -> list[str]:
    """Evaluators that ask the model that is trained."""
    trained = {name for stage in stages for name in stage.students}
    return [
        f"eval.evaluators.{name}: its judge '{judge}' is the model that is trained, so the scores would change with "
        "each update. Name another key of `llms`; it may be a second one with the same model"
        for name, evaluator in config.eval.evaluators.items()
        for judge in sorted(judges_of(evaluator) & trained)
    ]


def _reward_findings(stage: Stage, evaluators: Collection[str], *, held_out: bool) -> list[str]:
    reward = stage.finetuning.reward_function
    if reward is not None:
        return unknown_reward(reward.name, evaluators)
    if held_out or stage.num_generations is not None:
        return [f"finetuning.reward_function: not set, so no rollout has a reward. Evaluators: {one_of(evaluators)}"]
    return []


def unknown_reward(name: str, known: Collection[str]) -> list[str]:
    """A finding if there is no evaluator of that name."""
    if name in known:
        return []
    suggestion = f"{did_you_mean(name, known)} There: {one_of(known)}."
    return [f"finetuning.reward_function.name: '{name}' is not under eval.evaluators.{suggestion}"]


def sampling_findings(stage: Stage, llms: Mapping[str, LLMBaseConfig]) -> list[str]:
    """Findings about the LLM blocks that `target_model` selects, by key or model name.

    Without `target_model`, blocks are reported only if none of them is trainable.
    """
    if stage.builder is not None and stage.builder.gives != "samples":
        return []
    target, own = stage.finetuning.target_model, stage.finetuning.sampling_in_training
    blocks = {key: llm.model_dump() for key, llm in llms.items()}
    chosen = {
        key: block_sampling(block, None if own is None else own.temperature)
        for key, block in blocks.items()
        if target is None or target in {key, block.get("model_name")}
    }
    untrainable = {key: sampling for key, sampling in chosen.items() if not sampling.trainable}
    if target is None and len(untrainable) < len(chosen):
        return []
    return [block_finding(key, sampling) for key, sampling in untrainable.items()]


def _relative_findings(stage: Stage, *, held_out: bool) -> list[str]:
    """What does not go together with a reward that compares the generations of an example."""
    finetuning, findings = stage.finetuning, []
    if stage.reward is None or finetuning.reward_function is None or not stage.reward_compares:
        return []
    name = f"eval.evaluators.{finetuning.reward_function.name}"
    if stage.num_generations == 1:
        findings.append(
            f"trajectory_builders.{finetuning.trajectory_builder}.num_generations: 1, but {name} compares the "
            "generations of an example with each other; it takes 2 at least, and 8 are usual"
        )
    if finetuning.curriculum_learning.enabled:
        findings.append(
            "finetuning.curriculum_learning: it puts examples with a high mean reward first, but the scores of "
            f"{name} compare generations, so their mean does not say how hard an example is. Set enabled: false"
        )
    if finetuning.export_best and not held_out:
        findings.append(
            f"finetuning.export_best: the scores of {name} compare generations of the same weights, so without a "
            "validation dataset no weights are the best. Give --validation_dataset"
        )
    return findings


def phase_findings(stages: Sequence[Stage]) -> list[str]:
    """Phases that do not train one model, or order examples without playing them."""
    findings, first = [], stages[0]
    for stage in stages:
        if stage.finetuning.phase is None:
            continue
        if stage.finetuning.curriculum_learning.enabled and stage.builder is not None and not stage.builder.plays:
            findings.append(
                f"{stage.place}: curriculum_learning orders examples by the rewards of rollouts, and "
                f"{stage.builder.type} plays none; set it in the phases that play"
            )
        (was, trained), (now, trains) = ((each.type_of("trainer_adapter"), each.trained) for each in (first, stage))
        if (was, trained) != (now, trains):
            findings.append(
                f"{stage.place}.trainer_adapter: trains {trains or 'its model'} by {now}, but the phase "
                f"'{first.finetuning.phase}' trains {trained or 'its model'} by {was}; phases train one model"
            )
    return findings


def recipe_findings(stage: Stage, recipe: Recipe) -> list[str]:
    """Why an algorithm cannot train the stage."""
    if recipe.only_samples and stage.builder is not None and not stage.builder.plays:
        text = "trains what the model has sampled, and texts from a file are not; choose sft, dpo, kto or rft"
        return [f"the algorithm of {stage.finetuning.trainer_adapter} {text}"]
    if stage.num_generations == 1 and recipe.compares == "group" and not stage.compares_examples:
        return ["num_generations is 1, but the algorithm compares the rollouts of an example; set it to 8"]
    return []


def recipe_warnings(stage: Stage, recipe: Recipe) -> list[str]:
    """Likely problems of the stage with its algorithm, in whole sentences."""
    found = []
    if stage.reward_compares and recipe.compares == "batch":
        found.append(
            "The reward compares generations of one example, and the algorithm compares the rewards of all examples, "
            "which says nothing: choose one that compares inside groups, such as grpo."
        )
    if stage.num_generations == 1 and recipe.compares == "group":
        compared = "a rollout is compared with others of its example alone, and it has none, so nothing can be learned"
        if stage.compares_examples:
            compared = "rollouts are compared across all examples, so those of easy examples count as good answers"
        found.append(
            f"trajectory_builders.{stage.finetuning.trajectory_builder}.num_generations is 1: {compared}. Set it to 8."
        )
    return found


def settings_warnings(config: Config, given: FinetuneRunConfig, stages: Sequence[Stage]) -> list[str]:
    """Likely mistakes in the settings, in whole sentences."""
    found = [text for name in students_of(stages) for text in unlimited_answers(name, config.llms)]
    held_out = given.validation_dataset is not None
    if not held_out and any(stage.reward_compares for stage in stages):
        found.append(
            "The reward compares generations with each other, so it does not rise while the model gets better."
        )
    if given.endpoint is None:
        found += unknown_targets(config, stages)
    else:
        found.append(
            f"Rollouts run at {given.endpoint}: serve the same YAML there, with LLMs at the base_url of the "
            "training server that this YAML has; changes of the workflow in this YAML have no effect."
        )
    if not held_out:
        found.append("There is no validation dataset, so the run cannot tell whether the model got better.")
        if config.finetuning.max_staleness:
            found.append(
                "It keeps no best weights either: with max_staleness, an epoch's rewards measure weights that its "
                "update has replaced."
            )
    return found


def unlimited_answers(trained: str | None, llms: Mapping[str, LLMBaseConfig]) -> list[str]:
    """A warning if nothing in the YAML bounds the trained model's answers; an agent's own calls may do so."""
    if trained is None or trained not in llms or llms[trained].model_dump().get("max_tokens", 1) is not None:
        return []
    found = (
        f"llms.{trained}.max_tokens is not set: an answer may fill the rest of the model's context, which takes long "
        "and is seldom right. Set it to the longest answer that you want, unless the agent's calls limit their answers."
    )
    return [found]


def named_targets(config: Config) -> list[str]:
    """The target functions; the workflow's `_type` or `name` means the whole workflow."""
    workflow = {config.workflow.type, config.workflow.name} - config.functions.keys()
    return [WHOLE_WORKFLOW if name in workflow else name for name in config.finetuning.target_functions]


def unknown_targets(config: Config, stages: Sequence[Stage]) -> list[str]:
    """Warnings only: code can name a function by `push_active_function`, and ask for a model that the YAML has not."""
    known = {WHOLE_WORKFLOW, *config.functions}
    found = [
        f"finetuning.target_functions: '{name}' is not under `functions`."
        f"{did_you_mean(name, {*known, config.workflow.type})} Known are: {one_of(known)}. "
        "Nothing is trained unless the workflow's code pushes a function of that name."
        for name in config.finetuning.target_functions
        if name not in known
    ]
    name = config.finetuning.target_model
    blocks = [llm.model_dump() for llm in config.llms.values()]
    models = {str(block[key]) for block in blocks for key in ("model_name", "model") if block.get(key)}
    of_adapters = {text for stage in stages if stage.adapter is not None for text in _texts(stage.adapter.model_dump())}
    if name is None or target_names(name) <= {*config.llms, *models, *of_adapters}:
        return found
    suggestion = did_you_mean(name, {*config.llms, *models})
    text = f"finetuning.target_model: '{name}' is not under `llms`.{suggestion} Known are: {one_of(config.llms)}."
    return [*found, f"{text} Nothing is trained unless the workflow calls a model of that name."]


def _texts(value: Any) -> set[str]:
    """All texts in a component's settings: one of them may name the model that its server serves."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return {value} if isinstance(value, str) else {text for each in inner for text in _texts(each)}


Examples = tuple[Sequence[EvalInputItem], DatasetBaseConfig]


def shared_examples(training: Examples, held_out: Examples) -> str | None:
    """A warning if held-out examples are training examples, too."""
    if not (count := num_shared(_contents(*training), _contents(*held_out))):
        return None
    return (
        f"{count} held-out examples are in the training dataset, too: on these, the verdict cannot tell learning from "
        "memorising. Leave them out of one of the two."
    )


def repeated_examples(num_copies: int, num_held_out: int) -> str | None:
    """A warning if held-out examples repeat others."""
    if not num_copies:
        return None
    return (
        f"{num_copies} of {num_held_out} held-out examples repeat others, so the verdict counts "
        f"{num_held_out - num_copies}: copies are no further evidence. Leave them out, or replace them by other ones."
    )


def num_shared(training: Sequence[tuple[str, str]], held_out: Sequence[tuple[str, str]]) -> int:
    """How many held-out examples are training examples too; each is given as id and content.

    Examples are compared by content. Where most training examples share their content with another one, as in games
    that all begin alike, the id distinguishes them (it seeds their randomness), and both must be equal.
    """
    contents = {content for _, content in training}
    if 2 * len(contents) < len(training):
        return len(set(training) & set(held_out))
    return sum(content in contents for _, content in held_out)


def _contents(items: Sequence[EvalInputItem], dataset: DatasetBaseConfig) -> list[tuple[str, str]]:
    """Id and content of each example. The content is the workflow's input, or the whole row without its id."""
    if dataset.structure.disable:
        rows = [{k: v for k, v in item.full_dataset_entry.items() if k != dataset.id_key} for item in items]
    else:
        rows = [item.input_obj for item in items]
    texts = [json.dumps(row, sort_keys=True, ensure_ascii=False, default=str) for row in rows]
    return [(str(item.id), text) for item, text in zip(items, texts, strict=True)]
