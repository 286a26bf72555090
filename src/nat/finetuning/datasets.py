"""Read the datasets of a run before anything expensive starts."""

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.config import Config
from nat.data_models.finetuning import FinetuneRunConfig
from nat.eval.dataset_source import chosen_dataset, load_items
from nat.finetuning.checks import num_generations
from nat.runs.records import Phase


async def count_examples(config: Config, given: FinetuneRunConfig) -> dict[Phase, int]:
    """Examples to train on and, if there is a validation dataset, to validate on.

    Raises:
        DatasetError: one of them cannot be read.

    """
    configured = config.eval.general.dataset
    async with WorkflowBuilder(eval_general=config.eval.general) as builder:
        counts = {Phase.TRAIN: len(await load_items(chosen_dataset(configured, given.dataset), builder))}
        if given.validation_dataset is not None:
            held_out = chosen_dataset(configured, given.validation_dataset)
            counts[Phase.VALIDATION] = len(await load_items(held_out, builder))
    return counts


def planned_rollouts(config: Config, examples: dict[Phase, int]) -> dict[Phase, int]:
    """Rollouts of an epoch and of a validation, as far as they are known."""
    generations = num_generations(config)
    factor = {Phase.TRAIN: generations, Phase.VALIDATION: 1}
    return {phase: count * times for phase, count in examples.items() if (times := factor[phase]) is not None}
