"""What a rollout will take: as in the newest run of the same workflow and model, or assumed before the first one."""

from collections import deque
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from nat.errors import JournalError
from nat.finetuning.plan import Plan
from nat.runs.find import list_runs
from nat.runs.journal import reading
from nat.runs.recorded_config import config_of, value_at
from nat.runs.records import Phase
from nat.runs.rollouts import RolloutRecord
from nat.sizing.load import RolloutLoad, assumed_load

_LOOKED_AT = 5
"""Newest runs in which the workflow is looked for."""
_DECISIVE = ("model", "model_name", "max_tokens")
"""Keys of the LLM that decide how many tokens a rollout takes."""


def expected_load(plan: Plan) -> RolloutLoad:
    """The load of a rollout of the training dataset."""
    target = plan.finetuning.target_model
    wanted = _workflow(plan.config_text, target)
    for folder in list_runs(plan.finetuning.output_dir)[:_LOOKED_AT]:
        try:
            with reading(folder) as journal:
                if _workflow(journal.info().config_text, target) != wanted:
                    continue
                for last in deque(journal.each_epoch(), maxlen=1):
                    if found := load_of(journal.rollouts(Phase.TRAIN, last.epoch), folder.name):
                        return found.model_copy(update={"seconds": last.seconds / max(1, last.num_rollouts)})
        except JournalError:
            continue
    limit = value_at(config_of(plan.config_text), "llms", target, "max_tokens")
    return assumed_load(plan.longest_example, limit)


def load_of(records: Iterable[RolloutRecord], run: str) -> RolloutLoad | None:
    """The mean of an epoch's rollouts with rows; None if there is none."""
    calls, lengths, sampled, longest = [], [], [], 0
    for record in records:
        if record.rows and record.num_calls:
            calls.append(record.num_calls)
            lengths.append(sum(len(row.token_ids) for row in record.rows))
            sampled.append(sum(row.num_sampled for row in record.rows))
            longest = max(longest, *(len(row.token_ids) for row in record.rows))
    if not calls:
        return None
    return RolloutLoad(
        calls=fmean(calls),
        row_tokens=fmean(lengths),
        sampled_tokens=fmean(sampled),
        longest_row=longest,
        basis=f"as in the last epoch of {run}",
    )


def _workflow(config_text: str, target: str | None) -> tuple[Any, ...]:
    """What decides the load of a rollout, of a resolved configuration."""
    config = config_of(config_text)
    return (config.get("workflow"), *(value_at(config, "llms", target, key) for key in _DECISIVE))
