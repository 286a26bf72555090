"""The configuration of a run: the YAML with the command line's options applied, checked before anything is built."""

from collections.abc import Collection
from pathlib import Path

from nat.config.components import references_of
from nat.config.load import load_config
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import ConfigError, did_you_mean, one_of
from nat.finetuning.sampling import block_finding, block_sampling
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilderConfig


def check_config(config: Config, given: FinetuneRunConfig) -> None:
    """Raise one ConfigError with everything that keeps the run from starting."""
    finetuning = config.finetuning
    if not finetuning.enabled:
        raise ConfigError(
            ["finetuning.enabled: Finetuning is not enabled in the provided configuration."],
            hint="set `finetuning.enabled: true`",
        )
    findings = [*_reward_findings(config, given)]
    findings += _sampling_findings(config)
    if finetuning.early_stopping is not None and given.validation_dataset is None:
        findings.append("finetuning.early_stopping: it watches the held-out reward, but there is no validation dataset")
    if findings:
        raise ConfigError(findings, source=str(given.config_file) if given.config_file else "configuration")


def warnings(
    config: Config, given: FinetuneRunConfig, *, of_examples: Collection[str], compares_across_groups: bool
) -> list[str]:
    """Likely problems, in whole sentences; those of the examples come first."""
    found = [*of_examples]
    generations = num_generations(config)
    if generations == 1 and not compares_across_groups:
        found.append(
            "num_generations is 1: in a group of one rollout the advantage is zero, so nothing can be learned."
        )
    if given.endpoint is None:
        found += _unknown_targets(config)
    else:
        found.append(
            f"Rollouts run at {given.endpoint}: serve the same YAML there, with LLMs at the base_url of the training "
            "server that this YAML has; changes of the workflow in this YAML have no effect."
        )
    if given.validation_dataset is None:
        found.append("There is no validation dataset, so the run cannot tell whether the model got better.")
    return found


def num_generations(config: Config) -> int | None:
    """Rollouts per example; None if the builder does not declare them."""
    name = config.finetuning.trajectory_builder
    builder = config.trajectory_builders.get(name) if name is not None else None
    return builder.num_generations if isinstance(builder, EvalTrajectoryBuilderConfig) else None


def _unknown_targets(config: Config) -> list[str]:
    """Warnings only, since the workflow's code can name a function by `push_active_function`."""
    known = {WHOLE_WORKFLOW, *config.functions}
    return [
        f"finetuning.target_functions: '{name}' is not under `functions`.{did_you_mean(name, known)} Known are: "
        f"{one_of(known)}. Nothing is trained on, unless the workflow's code pushes a function of that name."
        for name in config.finetuning.target_functions
        if name not in known
    ]


def _sampling_findings(config: Config) -> list[str]:
    """Findings about the LLM blocks that `target_model` selects, by key or model name.

    Without `target_model`, blocks are reported only if none of them is trainable.

    """
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
        return _unknown(reward.name, evaluators)
    if given.validation_dataset is not None or num_generations(config) is not None:
        return [f"finetuning.reward_function: not set, so no rollout has a reward. Evaluators: {one_of(evaluators)}"]
    return []


def _unknown(name: str, known: Collection[str]) -> list[str]:
    if name in known:
        return []
    suggestion = f"{did_you_mean(name, known)} There: {one_of(known)}."
    return [f"finetuning.reward_function.name: '{name}' is not under eval.evaluators.{suggestion}"]


def resolve_config(given: FinetuneRunConfig) -> tuple[Config, FinetuneRunConfig]:
    """The whole configuration, checked, and the run's own settings.

    Those that the caller set replace the ones under `finetuning.run_configuration`. Without a `target_model`
    the LLM that the adapter trains is the target: answers of other models must not be trained on.
    """
    config = _loaded(given)
    given = _merged(config.finetuning.run_configuration, given)
    target = config.finetuning.target_model or trained_llm(config)
    finetuning = config.finetuning.model_copy(update={"run_configuration": given, "target_model": target})
    config = config.model_copy(update={"finetuning": finetuning})
    check_config(config, given)
    return config, given


def trained_llm(config: Config) -> str | None:
    """The LLM that the trainer adapter's configuration refers to; None unless it refers to exactly one."""
    adapter = config.trainer_adapters.get(str(config.finetuning.trainer_adapter))
    refs = references_of(adapter) if adapter is not None else []
    llms = {str(ref) for ref in refs if ref.component_group is ComponentGroup.LLMS}
    return llms.pop() if len(llms) == 1 else None


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
