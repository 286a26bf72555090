"""What can be said of a finetuning run before it begins. Pure."""

from collections.abc import Collection

from nat.data_models.config import Config
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import ConfigError
from nat.finetuning.trajectories.builder import EvalTrajectoryBuilderConfig
from nat.registry.suggest import did_you_mean, one_of


def check(config: Config, given: FinetuneRunConfig) -> None:
    """Raise one ConfigError with everything that keeps the run from beginning."""
    finetuning = config.finetuning
    if not finetuning.enabled:
        raise ConfigError(
            ["finetuning.enabled: Finetuning is not enabled in the provided configuration."],
            hint="set `finetuning.enabled: true`",
        )
    findings = [*_reward_findings(config, given)]
    if given.endpoint is not None:
        findings.append("endpoint: rollouts run in this process; a workflow behind a URL cannot be trained yet")
    if finetuning.early_stopping is not None and given.validation_dataset is None:
        findings.append("finetuning.early_stopping: it watches the held-out reward, but there is no validation dataset")
    if findings:
        raise ConfigError(findings, source=str(given.config_file) if given.config_file else "configuration")


def warnings(config: Config, given: FinetuneRunConfig, *, compares_across_groups: bool) -> list[str]:
    """What will probably disappoint, in whole sentences."""
    found = []
    generations = num_generations(config)
    if generations == 1 and not compares_across_groups:
        found.append(
            "num_generations is 1: a group of one rollout has nothing to be compared with, so nothing can be learned."
        )
    dataset = config.eval.general.dataset
    training = given.dataset or (str(dataset.file_path) if dataset and dataset.file_path else None)
    if given.validation_dataset is not None and given.validation_dataset == training:
        found.append("The validation dataset is the training dataset: it cannot tell learning from memorising.")
    if given.validation_dataset is None:
        found.append("There is no validation dataset, so the run cannot tell whether the model got better.")
    return found


def num_generations(config: Config) -> int | None:
    """Rollouts per example; None for a builder that does not say."""
    name = config.finetuning.trajectory_builder
    builder = config.trajectory_builders.get(name) if name is not None else None
    return builder.num_generations if isinstance(builder, EvalTrajectoryBuilderConfig) else None


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
