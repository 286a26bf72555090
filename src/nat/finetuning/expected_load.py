"""What a rollout will take: as in the newest run or the last probe of the same workflow and model, or assumed."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from nat.errors import JournalError
from nat.files import user_state, write_text
from nat.finetuning.change import change
from nat.finetuning.plan import Plan
from nat.runs.find import list_runs
from nat.runs.journal import reading
from nat.runs.recorded_config import config_of, value_at
from nat.runs.records import EpochRecord, Phase
from nat.runs.rollouts import RolloutRecord
from nat.sizing.load import RolloutLoad, assumed_load, different_tokens
from nat.wire.sampling import target_names

_LOOKED_AT = 5
"""Newest runs in which the workflow is looked for."""
_DECISIVE = ("model", "model_name")
"""Keys of an LLM that decide how many tokens a rollout takes; `max_tokens` does only if it cuts answers off."""
_ANY = "*"
"""Stands for the LLM of a run that does not name it."""
_CUT = 0.05
"""Share of rollouts with a cut-off answer, above which the longest answer is not known."""


def expected_load(plan: Plan) -> RolloutLoad:
    """The load of a rollout of the training dataset."""
    target = plan.finetuning.target_model
    wanted, limits = _workflow(plan.config_text, target)
    limit = _limit(limits)
    for folder in list_runs(plan.finetuning.output_dir)[:_LOOKED_AT]:
        try:
            with reading(folder) as journal:
                workflow, then = _workflow(journal.info().config_text, target)
                epochs = [epoch for epoch in journal.each_epoch() if epoch.played]
                if workflow != wanted or not epochs:
                    continue
                rollouts = journal.rollouts(Phase.TRAIN, epochs[-1].epoch)
                found = load_of(rollouts, f"run {folder.name}", max_tokens=_limit(then))
                if found is not None and found.holds_with(limit):
                    return found.model_copy(update=_of_epochs(epochs))
        except JournalError:
            continue
    with suppress(OSError, ValidationError):  # no probe is remembered
        probed = RolloutLoad.model_validate_json(_probe_file(plan, wanted).read_bytes())
        if probed.holds_with(limit):
            return probed
    return assumed_load(plan.longest_example, limits)


def remember_probe(plan: Plan, load: RolloutLoad) -> None:
    """Keep the load of a probe for the next plan of the same file; a home that cannot be written has no memory."""
    workflow, limits = _workflow(plan.config_text, plan.finetuning.target_model)
    load = load.model_copy(update={"max_tokens": _limit(limits)})
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        write_text(_probe_file(plan, workflow), load.model_dump_json() + "\n")


def load_of(records: Iterable[RolloutRecord], where: str, **known: float | None) -> RolloutLoad | None:
    """The mean of the rollouts with rows, of an epoch or a probe; None if there is none."""
    played = [record for record in records if record.rows and record.num_calls]
    if not played:
        return None
    rows_of_example: dict[str, list[Sequence[int]]] = defaultdict(list)
    for record in played:
        rows_of_example[record.example_id] += [row.token_ids for row in record.rows]
    lengths = [[len(row.token_ids) for row in record.rows] for record in played]
    cut = sum(record.truncated for record in played) / len(played)
    longest = max(span.size for record in played for row in record.rows for span in row.spans)
    return RolloutLoad(
        calls=fmean(record.num_calls or 0 for record in played),
        row_tokens=fmean(map(sum, lengths)),
        sampled_tokens=fmean(sum(row.num_sampled for row in record.rows) for record in played),
        longest_row=max(map(max, lengths)),
        different_tokens=sum(map(different_tokens, rows_of_example.values())) / len(played),
        rollouts=len(played),
        longest_answer=longest if cut <= _CUT else None,
        basis=f"in {where}",
    ).model_copy(update=known)


def _of_epochs(epochs: Sequence[EpochRecord]) -> dict[str, float]:
    """What all epochs of a run tell, since later ones often take less: seconds per rollout, groups, and rewards."""
    rollouts, third = sum(e.num_rollouts for e in epochs) or 1, len(epochs) // 3
    playing, groups = sum(e.metrics.get("time/rollout", 0.0) for e in epochs), sum(e.num_groups for e in epochs)
    rises = third and not epochs[-1].relative and change(epochs[-2 * third : -third], epochs[-third:]).rose
    return {
        "seconds": playing / rollouts,
        "update_seconds": (sum(e.seconds for e in epochs) - playing) / rollouts,
        "groups": groups,
        "differing": groups - sum(e.groups_without_difference for e in epochs),
        "rising": len(epochs) if rises else 0,
    }


def _probe_file(plan: Plan, workflow: Sequence[Any]) -> Path:
    """The file of the last probe of this configuration."""
    place = plan.given.config_file.resolve() if isinstance(plan.given.config_file, Path) else None
    name = sha256(json.dumps([place, *workflow], sort_keys=True, default=str).encode()).hexdigest()[:20]
    return user_state() / "probes" / f"{name}.json"


def _workflow(config_text: str, target: str | None) -> tuple[list[Any], dict[str, int | None]]:
    """What decides the load of a rollout, of a resolved configuration, and `max_tokens` of its trained LLMs."""
    config = config_of(config_text)
    names = sorted(target_names(target)) or [_ANY]
    decisive = [value_at(config, "llms", name, key) for name in names for key in _DECISIVE]
    return [config.get("workflow"), *decisive], {name: value_at(config, "llms", name, "max_tokens") for name in names}


def _limit(limits: Mapping[str, int | None]) -> int | None:
    """The highest limit; None if an answer has none."""
    return max(filter(None, limits.values())) if all(limits.values()) else None
