"""What does not go together with a reward that compares the generations of an example. Pure."""

from nat.config.components import references_of
from nat.data_models.config import Config
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.wire.training import Compares


def relative_findings(config: Config, *, generations: int | None, trained: str | None, validates: bool) -> list[str]:
    """What keeps a run from starting; `trained` is the LLM that is trained, where it is known."""
    if (evaluator := _relative_reward(config)) is None or config.finetuning.reward_function is None:
        return []
    finetuning, findings = config.finetuning, []
    name = f"eval.evaluators.{config.finetuning.reward_function.name}"
    if generations == 1:
        findings.append(
            f"trajectory_builders.{finetuning.trajectory_builder}.num_generations: 1, but {name} compares the "
            "generations of an example with each other; it takes 2 at least, and 8 are usual"
        )
    if finetuning.curriculum_learning.enabled:
        findings.append(
            "finetuning.curriculum_learning: it puts examples with a high mean reward first, but the scores of "
            f"{name} compare generations, so their mean does not say how hard an example is. Set enabled: false"
        )
    if finetuning.export_best and not validates:
        findings.append(
            f"finetuning.export_best: the scores of {name} compare generations of the same weights, so without a "
            "validation dataset no weights are the best. Give --validation_dataset"
        )
    if trained is not None and trained in map(str, references_of(evaluator)):
        findings.append(
            f"{name}: its judge '{trained}' is the model that is trained, so the scores would change with each "
            "update. Name another key of `llms`; it may be a second one with the same model"
        )
    return findings


def relative_warnings(config: Config, compares: Compares, *, validates: bool) -> list[str]:
    """Likely problems, in whole sentences."""
    if _relative_reward(config) is None:
        return []
    found = []
    if compares == "batch":
        found.append(
            "The reward compares generations of one example, and the algorithm compares the rewards of all examples, "
            "which says nothing: choose one that compares inside groups, such as grpo."
        )
    if not validates:
        found.append(
            "The reward compares generations with each other, so it does not rise while the model gets better."
        )
    return found


def _relative_reward(config: Config) -> EvaluatorBaseConfig | None:
    """The reward's evaluator, if its scores compare the generations of an example."""
    reward = config.finetuning.reward_function
    evaluator = None if reward is None else config.eval.evaluators.get(reward.name)
    return evaluator if evaluator is not None and evaluator.compares_generations else None
