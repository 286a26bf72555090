"""A run before anything is built: its configuration and its examples, read and checked."""

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import BackendError, ConfigError, did_you_mean, one_of
from nat.eval.dataset import answer_column_warning, check_expected_answers
from nat.eval.dataset_source import load_items, select_dataset
from nat.eval.report import check_writable
from nat.finetuning.phases import builder_of, each_phase, phase_findings, trained_llm
from nat.finetuning.relative_reward import relative_findings, relative_warnings
from nat.finetuning.sampling import block_finding, block_sampling
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilderConfig
from nat.runs.records import Phase
from nat.wire.training import Compares


@dataclass(frozen=True)
class PreparedRun:
    """A run whose configuration is resolved and whose datasets can be read."""

    config: Config
    """The YAML with the caller's options; its target model is set if it can be known."""
    given: FinetuneRunConfig
    """The caller's options, and for the rest those under `finetuning.run_configuration`."""
    num_examples: int
    num_held_out: int | None
    """Examples of the validation dataset; None without one."""
    example_warnings: tuple[str, ...]
    """Likely mistakes in the examples, in whole sentences."""
    longest_example: int = 0
    """Characters of the longest training example's input."""

    @property
    def phases(self) -> "list[PreparedRun]":
        """The run in each of its phases; without phases, this run."""
        return [replace(self, config=own) for own in each_phase(self.config)]

    @property
    def planned_rollouts(self) -> dict[Phase, int]:
        """Number of rollouts of an epoch and of a validation, where it is known."""
        builder = builder_of(self.config)
        planned = {
            Phase.TRAIN: builder.rollouts_of(self.num_examples) if builder else None,
            Phase.VALIDATION: self.num_held_out,
        }
        return {phase: count for phase, count in planned.items() if count is not None}

    def warnings(self, compares: Compares = "group") -> list[str]:
        """Likely problems of an algorithm that compares so, in whole sentences; those of the examples come first."""
        found = [*self.example_warnings, *unlimited_answers(self.config)]
        found += relative_warnings(
            self.config,
            compares,
            validates=self.given.validation_dataset is not None,
        )
        if num_generations(self.config) == 1 and compares == "group":
            found.append(
                f"trajectory_builders.{self.config.finetuning.trajectory_builder}.num_generations is 1: a rollout is "
                "compared with others of its example alone, and it has none, so nothing can be learned. Set it to 8."
            )
        if self.given.endpoint is None:
            found += [*_unknown_targets(self.config), *_unknown_model(self.config)]
        else:
            found.append(
                f"Rollouts run at {self.given.endpoint}: serve the same YAML there, with LLMs at the base_url of the "
                "training server that this YAML has; changes of the workflow in this YAML have no effect."
            )
        if self.given.validation_dataset is None:
            found.append("There is no validation dataset, so the run cannot tell whether the model got better.")
            if self.config.finetuning.max_staleness:
                found.append(
                    "It keeps no best weights either: with max_staleness, an epoch's rewards measure weights that its "
                    "update has replaced."
                )
        return found


def unlimited_answers(config: Config) -> list[str]:
    """A warning if nothing in the YAML bounds the trained model's answers; an agent's own calls may do so."""
    name = trained_llm(config)
    if name not in config.llms or config.llms[name].model_dump().get("max_tokens", 1) is not None:
        return []
    found = (
        f"llms.{name}.max_tokens is not set: an answer may fill the rest of the model's context, which takes long and "
        "is seldom right. Set it to the longest answer that you want, unless the agent's calls limit their answers."
    )
    return [found]


async def prepare(given: FinetuneRunConfig) -> PreparedRun:
    """Resolve the configuration, and read both datasets.

    Raises:
        ConfigError: the configuration is wrong, or the output folder cannot be written.
        DatasetError: a dataset cannot be read, or lacks the expected answers that the reward needs.

    """
    config, given = resolve_config(given)
    config = await asyncio.to_thread(pinned, config)
    check_writable(config.finetuning.output_dir, "finetuning.output_dir")
    training, dataset = await read_examples(config, given.dataset, config)
    findings = [answer_column_warning(training, dataset)]
    num_held_out = None
    if given.validation_dataset is not None:
        other = given.validation_config_file
        held_out, held_out_dataset = await read_examples(
            config if other is None else load_config(Path(other)), given.validation_dataset, config
        )
        num_held_out = len(held_out)
        shared = num_shared(_contents(training, dataset), _contents(held_out, held_out_dataset))
        findings += [answer_column_warning(held_out, held_out_dataset), _shared(shared)]
    longest = max((len(str(item.input_obj)) for item in training), default=0)
    return PreparedRun(config, given, len(training), num_held_out, tuple(filter(None, findings)), longest)


def resolve_config(given: FinetuneRunConfig) -> tuple[Config, FinetuneRunConfig]:
    """The whole configuration, checked, and the run's own settings."""
    config, given = configured(given)
    check_config(config, given)
    return config, given


def configured(given: FinetuneRunConfig) -> tuple[Config, FinetuneRunConfig]:
    """The whole configuration and the run's own settings; their finetuning sections are not checked.

    Settings that the caller set replace the ones under `finetuning.run_configuration`. Without a `target_model`
    the LLM that the adapter trains is the target: answers of other models must not be trained on.
    """
    config = _loaded(given)
    given = _merged(config.finetuning.run_configuration, given)
    target = config.finetuning.target_model or trained_llm(config)
    finetuning = config.finetuning.model_copy(update={"run_configuration": given, "target_model": target})
    return config.model_copy(update={"finetuning": finetuning}), given


def pinned(config: Config) -> Config:
    """The configuration with models by names that always mean the same weights."""
    llms = {}
    for name, llm in config.llms.items():
        try:
            llms[name] = llm.pinned()
        except BackendError as error:
            raise ConfigError([f"llms.{name}: {error.message}"], hint=error.hint) from error
    return config.model_copy(update={"llms": llms})


def check_config(config: Config, given: FinetuneRunConfig) -> None:
    """Raise one ConfigError with everything that keeps the run from starting."""
    finetuning = config.finetuning
    if not finetuning.enabled:
        raise ConfigError(
            ["finetuning.enabled: Finetuning is not enabled in the provided configuration."],
            hint="set `finetuning.enabled: true`",
        )
    phases = each_phase(config)
    found = [finding for own in phases for finding in _findings(own, given)]
    findings = [*dict.fromkeys(found), *phase_findings(phases)]
    if finetuning.early_stopping is not None and given.validation_dataset is None:
        findings.append("finetuning.early_stopping: it watches the held-out reward, but there is no validation dataset")
    if finetuning.max_staleness and finetuning.export_best and given.validation_dataset is None:
        findings.append(
            "finetuning.export_best: without a validation dataset, no weights have a score of their own when "
            "max_staleness is above 0: the next weights are trained while they play. Give --validation_dataset"
        )
    if findings:
        raise ConfigError(findings, source=str(given.config_file) if given.config_file else "configuration")


def _findings(config: Config, given: FinetuneRunConfig) -> list[str]:
    """What keeps the run, or a phase of it, from starting."""
    relative = relative_findings(
        config,
        generations=num_generations(config),
        trained=trained_llm(config),
        validates=given.validation_dataset is not None,
    )
    return [*_reward_findings(config, given), *sampling_findings(config), *relative]


def num_generations(config: Config) -> int | None:
    """Rollouts per example; None if the builder does not declare them."""
    builder = builder_of(config)
    return builder.num_generations if isinstance(builder, EvalTrajectoryBuilderConfig) else None


def num_shared(training: Sequence[tuple[str, str]], held_out: Sequence[tuple[str, str]]) -> int:
    """How many held-out examples are training examples too; each is given as id and content.

    Examples are compared by content. Where most training examples share their content with another one, as in games
    that all begin alike, the id distinguishes them (it seeds their randomness), and both must be equal.
    """
    contents = {content for _, content in training}
    if 2 * len(contents) < len(training):
        return len(set(training) & set(held_out))
    return sum(content in contents for _, content in held_out)


def _loaded(given: FinetuneRunConfig) -> Config:
    if isinstance(given.config_file, Config):
        return given.config_file
    if isinstance(given.config_file, Path):
        return load_config(given.config_file, given.override)
    raise ConfigError([f"config_file: {given.config_file!r} is neither a path nor a loaded configuration"])


def _merged(configured: FinetuneRunConfig | None, given: FinetuneRunConfig) -> FinetuneRunConfig:
    if configured is None:
        return given
    return configured.model_copy(update={name: getattr(given, name) for name in given.model_fields_set})


def _unknown_targets(config: Config) -> list[str]:
    """Warnings only, since the workflow's code can name a function by `push_active_function`."""
    known = {WHOLE_WORKFLOW, *config.functions}
    return [
        f"finetuning.target_functions: '{name}' is not under `functions`.{did_you_mean(name, known)} Known are: "
        f"{one_of(known)}. Nothing is trained unless the workflow's code pushes a function of that name."
        for name in config.finetuning.target_functions
        if name not in known
    ]


def _unknown_model(config: Config) -> list[str]:
    """A warning only, since agents may ask for models by names that the YAML does not have."""
    name, adapter = config.finetuning.target_model, str(config.finetuning.trainer_adapter)
    blocks = [llm.model_dump() for llm in config.llms.values()]
    known = {str(block[key]) for block in blocks for key in ("model_name", "model") if block.get(key)}
    trained = config.trainer_adapters.get(adapter)
    if name is None or name in {*config.llms, *known, *_texts(trained.model_dump() if trained else None)}:
        return []
    suggestion = did_you_mean(name, {*config.llms, *known})
    text = f"finetuning.target_model: '{name}' is not under `llms`.{suggestion} Known are: {one_of(config.llms)}."
    return [f"{text} Nothing is trained unless the workflow calls a model of that name."]


def _texts(value: Any) -> set[str]:
    """All texts in a component's settings: one of them may name the model that its server serves."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return {value} if isinstance(value, str) else {text for each in inner for text in _texts(each)}


def sampling_findings(config: Config) -> list[str]:
    """Findings about the LLM blocks that `target_model` selects, by key or model name.

    Without `target_model`, blocks are reported only if none of them is trainable.

    """
    builder = builder_of(config)
    if builder is not None and builder.gives != "samples":
        return []
    target, own = config.finetuning.target_model, config.finetuning.sampling_in_training
    blocks = {key: llm.model_dump() for key, llm in config.llms.items()}
    chosen = {
        key: block_sampling(block, None if own is None else own.temperature)
        for key, block in blocks.items()
        if target is None or target in {key, block.get("model_name")}
    }
    untrainable = {key: sampling for key, sampling in chosen.items() if not sampling.trainable}
    if target is None and len(untrainable) < len(chosen):
        return []
    return [block_finding(key, sampling) for key, sampling in untrainable.items()]


def _reward_findings(config: Config, given: FinetuneRunConfig) -> list[str]:
    reward, evaluators = config.finetuning.reward_function, config.eval.evaluators
    if reward is not None:
        return unknown_reward(reward.name, evaluators)
    if given.validation_dataset is not None or num_generations(config) is not None:
        return [f"finetuning.reward_function: not set, so no rollout has a reward. Evaluators: {one_of(evaluators)}"]
    return []


def unknown_reward(name: str, known: Collection[str]) -> list[str]:
    """A finding if there is no evaluator of that name."""
    if name in known:
        return []
    suggestion = f"{did_you_mean(name, known)} There: {one_of(known)}."
    return [f"finetuning.reward_function.name: '{name}' is not under eval.evaluators.{suggestion}"]


async def read_examples(
    config: Config, file: str | None, training: Config
) -> tuple[list[EvalInputItem], DatasetBaseConfig]:
    """The examples of the configured dataset or of `file`, checked for what the reward of `training` needs."""
    dataset = select_dataset(config.eval.general.dataset, file)
    async with WorkflowBuilder(eval_general=config.eval.general) as builder:
        items = await load_items(dataset, builder)
    reward = training.finetuning.reward_function
    used = {} if reward is None else {n: e for n, e in config.eval.evaluators.items() if n == reward.name}
    check_expected_answers(items, dataset, used)
    return items, dataset


def _contents(items: Sequence[EvalInputItem], dataset: DatasetBaseConfig) -> list[tuple[str, str]]:
    """Id and content of each example. The content is the workflow's input, or the whole row without its id."""
    if dataset.structure.disable:
        rows = [{k: v for k, v in item.full_dataset_entry.items() if k != dataset.id_key} for item in items]
    else:
        rows = [item.input_obj for item in items]
    texts = [json.dumps(row, sort_keys=True, ensure_ascii=False, default=str) for row in rows]
    return [(str(item.id), text) for item, text in zip(items, texts, strict=True)]


def _shared(count: int) -> str | None:
    if not count:
        return None
    return (
        f"{count} held-out examples are in the training dataset, too: on these, the verdict cannot tell learning from "
        "memorising. Leave them out of one of the two."
    )
