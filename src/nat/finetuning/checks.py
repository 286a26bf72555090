"""What can be said of a finetuning run before it begins. Pure."""

from collections.abc import Collection

from nat.data_models.config import Config
from nat.data_models.finetuning import FinetuneRunConfig, RewardFunctionConfig, Trajectory, TrajectoryCollection
from nat.data_models.score import problem_of
from nat.errors import ConfigError, InvalidTrajectories, did_you_mean, one_of
from nat.finetuning.sampling import block_finding, block_sampling
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilderConfig


def check(config: Config, given: FinetuneRunConfig) -> None:
    """Raise one ConfigError with everything that keeps the run from beginning."""
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
    """What will probably disappoint, in whole sentences; first what reading the examples has shown."""
    found = [*of_examples]
    generations = num_generations(config)
    if generations == 1 and not compares_across_groups:
        found.append(
            "num_generations is 1: a group of one rollout has nothing to be compared with, so nothing can be learned."
        )
    if given.endpoint is None:
        found += _unknown_targets(config)
    else:
        found.append(
            f"Rollouts run at {given.endpoint}: serve the same YAML there, with LLMs that ask the server that trains "
            "under the base_url that stands here; changes of this YAML's workflow have no effect."
        )
    if given.validation_dataset is None:
        found.append("There is no validation dataset, so the run cannot tell whether the model got better.")
    return found


def check_credit(reward: RewardFunctionConfig | None, collected: TrajectoryCollection) -> None:
    """Raise ConfigError if answers are to be compared by rewards of their own, and a trajectory has none.

    Whether a builder gives them is known only once it has.
    """
    if reward is None or reward.credit == "outcome":
        return
    trajectories = [trajectory for group in collected.trajectories for trajectory in group]
    if without := sum(trajectory.shaped_rewards is None for trajectory in trajectories):
        found = f"'{reward.credit}', but {without} of {len(trajectories)} trajectories have no shaped_rewards"
        raise ConfigError(
            [f"finetuning.reward_function.credit: {found}, so it would have no effect on them"],
            hint="use a trajectory builder that gives them, as the built-in ones do, or `credit: outcome`",
        )


def check_rewards(collected: TrajectoryCollection) -> None:
    """Raise InvalidTrajectories if a builder of others gave a rollout or an answer a reward that is no score."""
    every = [trajectory for group in collected.trajectories for trajectory in group]
    if bad := [problem for trajectory in every if (problem := _reward_problem(trajectory))]:
        raise InvalidTrajectories(
            f"{len(bad)} of {len(every)} trajectories have a reward that cannot be trained on; of the first, {bad[0]}",
            hint="let `finalize` of the trajectory builder leave out rollouts that have no reward",
        )


def _reward_problem(trajectory: Trajectory) -> str | None:
    shaped = (problem_of(value, "a shaped reward") for value in trajectory.shaped_rewards or ())
    return problem_of(trajectory.reward, "the reward") or next(filter(None, shaped), None)


def num_generations(config: Config) -> int | None:
    """Rollouts per example; None for a builder that does not say."""
    name = config.finetuning.trajectory_builder
    builder = config.trajectory_builders.get(name) if name is not None else None
    return builder.num_generations if isinstance(builder, EvalTrajectoryBuilderConfig) else None


def _unknown_targets(config: Config) -> list[str]:
    """No error: code can name a function by `push_active_function`."""
    known = {WHOLE_WORKFLOW, *config.functions}
    return [
        f"finetuning.target_functions: '{name}' is not under `functions`.{did_you_mean(name, known)} Known are: "
        f"{one_of(known)}. Nothing is trained on, unless the workflow's code pushes a function of that name."
        for name in config.finetuning.target_functions
        if name not in known
    ]


def _sampling_findings(config: Config) -> list[str]:
    """Of the blocks that `target_model` chooses, by their key or the model's name; without one if none is trainable."""
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
