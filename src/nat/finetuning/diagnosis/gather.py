"""Read what the diagnosis needs from a run's journal."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from nat.finetuning.diagnosis.find import Diagnosis, diagnosis_of
from nat.finetuning.diagnosis.measure import Facts, evidence_of
from nat.finetuning.metrics import score_metrics
from nat.finetuning.rollout_statistics import success_by_example, unseen_words
from nat.runs.journal import Journal, reading
from nat.runs.recorded_config import config_of, finetuning_value
from nat.runs.records import EpochRecord, Finding, Phase, ValidationRecord
from nat.runs.rollouts import RolloutRecord

logger = logging.getLogger(__name__)


async def findings_of(run_dir: Path, *, ended: bool) -> Sequence[Finding]:
    """The causes that the run's journal shows, read beside the event loop; none if it cannot be judged."""

    def read() -> Sequence[Finding]:
        with reading(run_dir) as journal:
            return diagnose_run(journal, ended=ended).findings

    try:
        return await asyncio.to_thread(read)
    except Exception:
        logger.warning("the run could not be diagnosed", exc_info=True)
        return []


def diagnose_run(journal: Journal, *, ended: bool) -> Diagnosis:
    """Judge the run as far as it is recorded; one that has not `ended` cannot be too short."""
    epochs = [_completed(epoch, journal) for epoch in journal.each_epoch()]
    validations = journal.validations()
    unfinished = list(journal.rollouts(Phase.TRAIN, len(epochs)))
    last = unfinished or (list(journal.rollouts(Phase.TRAIN, len(epochs) - 1)) if epochs else [])
    unseen, usual = _unseen(journal, validations)
    training = next((job.training for job in reversed(journal.jobs()) if job.training), {})
    facts = Facts(
        target_functions=_target_functions(journal),
        compares_across_groups=bool(training.get("compares_across_groups")),
        last_rollouts=last,
        unfinished=bool(unfinished),
        validations=validations,
        unseen_words=unseen,
        usual_unseen=usual,
    )
    return diagnosis_of(evidence_of(epochs, facts), ended=ended)


def _completed(epoch: EpochRecord, journal: Journal) -> EpochRecord:
    """The epoch with the numbers that earlier releases did not record."""
    if epoch.examples:
        return epoch
    records = list(journal.rollouts(Phase.TRAIN, epoch.epoch))
    update = {"examples": success_by_example(records), "metrics": score_metrics(records) | epoch.metrics}
    return epoch.model_copy(update=update)


def _unseen(journal: Journal, validations: Sequence[ValidationRecord]) -> tuple[float | None, float | None]:
    """Shares of unseen words, of the held-out examples and between those in training."""
    if len(validations) < 2:  # noqa: PLR2004 - held-out scores are compared from two on
        return None, None
    held_out: list[RolloutRecord] = list(journal.rollouts(Phase.VALIDATION, validations[0].epoch))
    played = list(journal.rollouts(Phase.TRAIN, 0))
    return unseen_words(held_out, played), unseen_words(played, played)


def _target_functions(journal: Journal) -> Sequence[str]:
    names = finetuning_value(config_of(journal.info().config_text), "target_functions")
    return [str(name) for name in names] if isinstance(names, list) else []
