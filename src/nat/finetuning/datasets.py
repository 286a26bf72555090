"""Read and check the datasets of a run before anything expensive starts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.finetuning import FinetuneRunConfig
from nat.eval.dataset import answer_column_warning, check_expected_answers
from nat.eval.dataset_source import load_items, select_dataset
from nat.finetuning.configuration import num_generations
from nat.runs.records import Phase


@dataclass(frozen=True)
class Examples:
    """The number of examples of the training and validation datasets."""

    training: int
    held_out: int | None = None
    warnings: tuple[str, ...] = ()
    """Likely mistakes in the examples, in whole sentences."""

    @property
    def counts(self) -> Mapping[Phase, int]:
        return {Phase.TRAIN: self.training} | ({} if self.held_out is None else {Phase.VALIDATION: self.held_out})


async def read_examples(config: Config, given: FinetuneRunConfig) -> Examples:
    """Count the examples of both datasets, and collect warnings about them.

    Raises:
        DatasetError: one of them cannot be read, or lacks the expected answers that the reward needs.

    """
    training, dataset = await _read(config, given.dataset, config)
    findings = [answer_column_warning(training, dataset)]
    if given.validation_dataset is None:
        return Examples(len(training), warnings=_texts(findings))
    other = given.validation_config_file
    held_out, held_out_dataset = await _read(
        config if other is None else load_config(Path(other)), given.validation_dataset, config
    )
    shared = num_shared(_contents(training, dataset), _contents(held_out, held_out_dataset))
    findings += [answer_column_warning(held_out, held_out_dataset), _shared(shared)]
    return Examples(len(training), len(held_out), _texts(findings))


def _shared(count: int) -> str | None:
    if not count:
        return None
    return (
        f"{count} held-out examples are in the training dataset, too: on these, the verdict cannot tell learning from "
        "memorising. Leave them out of one of the two."
    )


def _texts(findings: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(text for text in findings if text)


def planned_rollouts(config: Config, examples: Examples) -> dict[Phase, int]:
    """Number of rollouts of an epoch and of a validation, where it is known."""
    factor = {Phase.TRAIN: num_generations(config), Phase.VALIDATION: 1}
    return {phase: count * times for phase, count in examples.counts.items() if (times := factor[phase]) is not None}


def num_shared(training: Sequence[tuple[str, str]], held_out: Sequence[tuple[str, str]]) -> int:
    """How many held-out examples are training examples too; each is given as id and content.

    Examples are compared by content. Where most training examples share their content with another one, as in games
    that all begin alike, the id distinguishes them (it seeds their randomness), and both must be equal.
    """
    contents = {content for _, content in training}
    if 2 * len(contents) < len(training):
        return len(set(training) & set(held_out))
    return sum(content in contents for _, content in held_out)


async def _read(config: Config, file: str | None, training: Config) -> tuple[list[EvalInputItem], DatasetBaseConfig]:
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
