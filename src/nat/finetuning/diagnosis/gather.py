"""Read what the diagnosis needs from a run's journal."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.catalogue import Diagnosis, diagnosis_of
from nat.finetuning.diagnosis.window import Window
from nat.runs.journal import Journal, reading
from nat.runs.liveness import is_alive
from nat.runs.recorded_config import config_of, finetuning_value
from nat.runs.records import EpochRecord, Finding, JobRecord, Phase, RunState, RunSummary, ValidationRecord
from nat.runs.rollouts import RolloutRecord

logger = logging.getLogger(__name__)

MOST_READ = 2000
"""Rollouts of an epoch that are read whole: a share over so many has a standard error of at most 1.1 %."""
MOST_EPOCHS = 500
"""Epochs by which a run that goes on is judged, so that memory and time do not grow with it; its end judges all."""
SHOWN = 2
"""Causes at the end of a run; `nat diagnose` shows all."""


async def findings_of(run_dir: Path, *, ended: bool) -> Sequence[Finding]:
    """The causes that the run's journal shows, read beside the event loop; none if it cannot be judged.

    Of a run that goes on, those of the last `MOST_EPOCHS` epochs of its current phase.
    """

    def read() -> Sequence[Finding]:
        with reading(run_dir) as journal:
            return _findings(journal, ended=ended)

    try:
        return await asyncio.to_thread(read)
    except Exception:
        logger.warning("the run could not be diagnosed", exc_info=True)
        return []


def findings_in(journal: Journal) -> Sequence[Finding]:
    """The causes that the summary of a run has; without one, those that its records show."""
    summary = journal.find(RunSummary)
    return _findings(journal, ended=has_ended(journal)) if summary is None else summary.causes


def has_ended(journal: Journal) -> bool:
    """True if no process goes on with the run."""
    return journal.info().state is not RunState.RUNNING or not is_alive(journal.run_dir)


def _findings(journal: Journal, *, ended: bool) -> Sequence[Finding]:
    if not ended:
        first = max([journal.num_epochs() - MOST_EPOCHS, *(phase.first_epoch for phase in journal.phases()[-1:])])
        return _diagnosis(journal, ended=False, first=max(0, first)).findings
    found = [
        finding.model_copy(update={"title": f"Phase {name}: {finding.title}"}) if name else finding
        for name, diagnosis in diagnoses(journal, ended=True).items()
        for finding in diagnosis.findings
    ]
    return sorted(found, key=lambda finding: -finding.share)


def diagnoses(journal: Journal, *, ended: bool) -> dict[str, Diagnosis]:
    """Judge the run as far as it is recorded, each phase of training by itself: their rewards measure different things.

    By the phase's name; a run without phases is one without a name.
    """
    phases = journal.phases()
    if not phases:
        return {"": _diagnosis(journal, ended=ended)}
    ends = [*(phase.first_epoch for phase in phases[1:]), None]
    return {
        phase.name: _diagnosis(journal, ended=ended or end is not None, first=phase.first_epoch, end=end)
        for phase, end in zip(phases, ends, strict=True)
    }


def _diagnosis(journal: Journal, *, ended: bool, first: int = 0, end: int | None = None) -> Diagnosis:
    """Judge these epochs, and the validations before, between and after them."""
    done = journal.num_epochs() if end is None else end
    epochs = list(journal.each(EpochRecord, first, done))
    trained = [job.training for job in journal.each(JobRecord, first, end) if job.training]
    training = trained[-1] if trained else {}
    unfinished = _some_rollouts(journal, done) if end is None else []
    config = config_of(journal.info().config_text)
    functions, model = (finetuning_value(config, f"target_{kind}") for kind in ("functions", "model"))
    window = Window(
        epochs,
        guards=guards_of(config),
        compares=training.get("compares", "group"),  # type: ignore[arg-type]  # as the backend has resolved it
        rollouts=unfinished or (_some_rollouts(journal, done - 1) if epochs else []),
        unfinished=bool(unfinished),
        ended=ended,
        validations=list(journal.each(ValidationRecord, first, end and end + 1)),
        target_functions=[str(name) for name in functions] if isinstance(functions, list) else [],
        target_model=model if isinstance(model, str) else None,
    )
    return diagnosis_of(window)


def _some_rollouts(journal: Journal, epoch: int) -> list[RolloutRecord]:
    return list(journal.some_rollouts(Phase.TRAIN, epoch, MOST_READ))


def guards_of(config: Mapping[str, Any]) -> GuardsConfig:
    """The bounds of the run; the usual ones if it recorded none that are valid."""
    try:
        return GuardsConfig.model_validate(finetuning_value(config, "guards") or {})
    except ValidationError:
        return GuardsConfig()


def explanation(findings: Sequence[Finding], run_dir: Path) -> list[str]:
    """The first causes, one paragraph each, and the command that shows all; empty without a cause."""
    if not findings:
        return []
    return [*map(str, findings[:SHOWN]), f"All causes, with their numbers: nat diagnose {run_dir}"]
