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
from nat.runs.records import Finding, Phase, RunState, TrainingPhase
from nat.runs.rollouts import RolloutRecord

logger = logging.getLogger(__name__)

MOST_READ = 2000
"""Rollouts of an epoch that are read whole: a share over so many has a standard error of at most 1.1 %."""
MOST_EPOCHS = 500
"""Epochs by which a run that goes on is judged, so that memory and time do not grow with it; its end judges all."""


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
    if (summary := journal.summary()) is not None:
        return summary.causes
    state = journal.info().state
    return _findings(journal, ended=state is not RunState.RUNNING or not is_alive(journal.run_dir))


def _findings(journal: Journal, *, ended: bool) -> Sequence[Finding]:
    if not ended:
        first = max([journal.num_epochs() - MOST_EPOCHS, *(phase.first_epoch for phase in journal.phases()[-1:])])
        return diagnose_run(journal, ended=False, first=max(0, first)).findings
    if phases := diagnose_phases(journal, ended=True):
        found = [
            finding.model_copy(update={"title": f"Phase {phase.name}: {finding.title}"})
            for phase, diagnosis in phases
            for finding in diagnosis.findings
        ]
        return sorted(found, key=lambda finding: -finding.share)
    return diagnose_run(journal, ended=True).findings


def diagnose_phases(journal: Journal, *, ended: bool) -> list[tuple[TrainingPhase, Diagnosis]]:
    """Judge each phase of training by itself, since their rewards measure different things; empty without phases."""
    phases = journal.phases()
    ends = [*(phase.first_epoch for phase in phases[1:]), None]
    return [
        (phase, diagnose_run(journal, ended=ended or end is not None, first=phase.first_epoch, end=end))
        for phase, end in zip(phases, ends, strict=False)
    ]


def diagnose_run(journal: Journal, *, ended: bool, first: int = 0, end: int | None = None) -> Diagnosis:
    """Judge the run as far as it is recorded; one that has not `ended` cannot be too short.

    With `first` and `end`, judge these epochs, and the validations before, between and after them.
    """
    done = journal.num_epochs() if end is None else end

    def inside(epoch: int) -> bool:
        return first <= epoch and (end is None or epoch < end)

    epochs = [epoch for epoch in journal.each_epoch(first) if inside(epoch.epoch)]
    validations = [record for record in journal.each_validation(first) if inside(record.epoch) or record.epoch == end]
    unfinished = _some_rollouts(journal, done) if end is None else []
    training = next((job.training for job in journal.each_job_backwards() if job.training and inside(job.epoch)), {})
    config = config_of(journal.info().config_text)
    functions, model = (finetuning_value(config, f"target_{kind}") for kind in ("functions", "model"))
    window = Window(
        epochs,
        guards=guards_of(config),
        compares=training.get("compares", "group"),  # type: ignore[arg-type]  # as the backend has resolved it
        rollouts=unfinished or (_some_rollouts(journal, done - 1) if epochs else []),
        unfinished=bool(unfinished),
        validations=validations,
        target_functions=[str(name) for name in functions] if isinstance(functions, list) else [],
        target_model=model if isinstance(model, str) else None,
    )
    return diagnosis_of(window, ended=ended)


def _some_rollouts(journal: Journal, epoch: int) -> list[RolloutRecord]:
    return list(journal.some_rollouts(Phase.TRAIN, epoch, MOST_READ))


def guards_of(config: Mapping[str, Any]) -> GuardsConfig:
    """The bounds of the run; the usual ones if it recorded none that are valid."""
    try:
        return GuardsConfig.model_validate(finetuning_value(config, "guards") or {})
    except ValidationError:
        return GuardsConfig()


SHOWN = 2
"""Causes at the end of a run; `nat diagnose` shows all."""


def explanation(findings: Sequence[Finding], run_dir: Path) -> list[str]:
    """The first causes, one paragraph each, and the command that shows all; empty without a cause."""
    if not findings:
        return []
    return [*map(str, findings[:SHOWN]), f"All causes, with their numbers: nat diagnose {run_dir}"]


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """All causes with their numbers, in the order of likelihood."""
    window, change = diagnosis.window, diagnosis.window.change
    reward = "" if change is None else f" The mean reward was {change}."
    if not window.played and (losses := window.values("train/loss")):
        reward = f" The loss on the file's rows was {losses[0]:.3f} at first, {losses[-1]:.3f} in the last epoch."
        reward += "" if window.held_out is None else f" Held-out: {window.held_out.sentence}"
    if not diagnosis.findings:
        return f"{'Healthy: the run has learned.' if diagnosis.healthy else 'No cause found.'}{reward}"
    rises = window.improved or (change is not None and change.rose)
    judged = "Rising, with a caveat." if window.learned else "Rising slowly." if rises else "Not learning."
    paragraphs = (
        f"{number}. {each.title} ({each.share:.0%} of the signal)\n"
        f"   seen     {each.seen}\n   healthy  {each.healthy}\n   change   {each.remedy}"
        for number, each in enumerate(diagnosis.findings, 1)
    )
    return "\n\n".join([f"{judged}{reward}", *paragraphs])
