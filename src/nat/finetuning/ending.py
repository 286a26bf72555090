"""The end of a run that failed or was interrupted: what it has trained is judged, kept and summarised."""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Sequence
from typing import Any

from nat.errors import (
    BackendUnreachable,
    EvaluationError,
    JournalError,
    NatError,
    StorageError,
    describe_error,
)
from nat.files import shown
from nat.finetuning.best_model import BEST_MODEL, saved_results
from nat.finetuning.budget import budget_of
from nat.finetuning.diagnosis.gather import explanation, findings_of
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.run_log import RunLog
from nat.finetuning.summary import compared, summarise
from nat.finetuning.validation import no_verdict, validate
from nat.finetuning.verdict import Comparison
from nat.runs.folder import write_files
from nat.runs.journal import Journal
from nat.runs.preemption import Preempted, resume_command
from nat.runs.records import BestEpoch, Finding, RunState, RunSummary, after_epoch
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

SECONDS_AFTER_INTERRUPT = 6.0
"""Time for a validation after Ctrl-C, for which a user waits; what is missing can be played later."""

_CANNOT_BE_JUDGED = (BackendUnreachable, EvaluationError, JournalError, StorageError, OSError)
"""After these errors, a validation would fail as well."""


async def judge_after(error: BaseException, trainer: Trainer, run: RunLog) -> None:
    """Play the held-out examples with the last weights, unless that was done or cannot be done; never raises.

    The servers must be alive. An interrupted run has only some seconds.
    """
    interrupted = isinstance(error, CancelledError)
    if not isinstance(error, Exception | CancelledError) or isinstance(error, _CANNOT_BE_JUDGED):
        return
    epochs, validations = run.journal.num_epochs(), run.journal.validations()
    if not validations or no_verdict(trainer) is not None:
        return
    judged = validations[-1].epoch
    if not any(job.status is JobStatus.COMPLETED for job in run.journal.jobs() if judged <= job.epoch < epochs):
        return  # these weights have played them
    if (why := _not_judged(run.journal, epochs, interrupted=interrupted)) is None:
        run.say(f"Playing the held-out examples with the weights {after_epoch(epochs)} …")
        why = await _judged(trainer, epochs, run, SECONDS_AFTER_INTERRUPT if interrupted else None)
    if why is not None:
        run.warn(f"The weights {after_epoch(epochs)} are not judged: {why}")


def _not_judged(journal: Journal, epochs: int, *, interrupted: bool) -> str | None:
    """Why the weights after the last finished epoch cannot be played with."""
    open_jobs = [job for job in journal.jobs() if job.epoch >= epochs]
    if any(job.status in (JobStatus.COMPLETED, JobStatus.PENDING, JobStatus.RUNNING) for job in open_jobs):
        return "a job of the next epoch was under way, which may have changed them"
    seconds = journal.validations()[-1].seconds
    if interrupted and seconds > SECONDS_AFTER_INTERRUPT:
        most = f"{SECONDS_AFTER_INTERRUPT:g} s"
        return f"after Ctrl-C, no validation begins that may take more than {most}; the last one took {seconds:.1f} s"
    return None


async def _judged(trainer: Trainer, epochs: int, run: RunLog, limit: float | None) -> str | None:
    """Validate; returns why that failed."""
    # In a task of its own, since a task that was cancelled cannot tell a further cancellation from the first.
    task = asyncio.create_task(validate(trainer, epochs, run, last=True))
    try:
        async with asyncio.timeout(limit):
            await task
    except TimeoutError:
        return f"the validation did not end within {limit:g} s"
    except Exception as second:
        logger.debug("the validation failed, too", exc_info=True)
        return describe_error(second)
    return None


def summary_of(
    run: RunLog, *, state: RunState, ended_early: str | None, judged_epoch: int, causes: Sequence[Finding], **found: Any
) -> tuple[RunSummary, Comparison | None]:
    """The summary of what the journal has, and the verdict about the weights after `judged_epoch` epochs."""
    journal = run.journal
    epochs, validations = journal.epochs(), journal.validations()
    comparison = compared(validations, judged_epoch)
    summary = summarise(
        run.run_id,
        comparison,
        journal.jobs(),
        played=epochs,
        validations=validations,
        epochs=len(epochs),
        judged_epoch=judged_epoch,
        state=state,
        ended_early=ended_early,
        seconds=run.seconds,
        best=journal.find(BestEpoch),
        causes=causes,
        phases=journal.phases(),
        budget=budget_of(journal),
        **found,
    )
    return summary, comparison


async def end_after(error: BaseException, run: RunLog) -> list[str]:
    """Record the end and the summary of a run that ended by an error; a failing disk must not hide why.

    Returns the summary for people: verdict, saved results, causes. That of a run that was preempted has no plot and no
    causes, which take time.
    """
    journal, run_dir, preempted = run.journal, shown(run.journal.run_dir), isinstance(error, Preempted)
    state, reason = _state_after(error), str(error) or type(error).__name__
    if isinstance(error, CancelledError) and not str(error):
        reason = "canceled"
    try:
        run.end(state, reason)
        validations = journal.validations()
        judged = validations[-1].epoch if validations else 0
        causes = [] if preempted else await findings_of(run_dir, ended=True)
        best, best_model = journal.find(BestEpoch), BEST_MODEL if (run_dir / BEST_MODEL).is_dir() else None
        summary, comparison = summary_of(
            run,
            state=state,
            ended_early=reason,
            judged_epoch=judged,
            causes=causes,
            model=None,
            best_model=best_model,
        )
        if preempted:
            run.append(summary)
        else:
            await run.summarised(summary)
        write_files(journal)
    except (OSError, NatError) as second:
        if not (isinstance(error, JournalError) and isinstance(second, JournalError)):  # else it is why the run ended
            logger.error("the run's end could not be recorded: %s", describe_error(second))
        return saved_results(run_dir, None)
    verdict = [] if comparison is None else [f"Verdict {after_epoch(judged)}: {comparison.sentence}"]
    news = [cause for cause in causes if cause.seen not in str(error)]
    can_go_on = isinstance(error, CancelledError | BackendUnreachable)
    goes_on = [f"Go on with the run: {resume_command(run_dir)}"] if can_go_on else []
    return [*verdict, *saved_results(run_dir, best), *explanation(news, run_dir), *goes_on]


def _state_after(error: BaseException) -> RunState:
    """How a run ends by this error."""
    if isinstance(error, Preempted):
        return RunState.INTERRUPTED
    return RunState.CANCELED if isinstance(error, CancelledError | KeyboardInterrupt) else RunState.FAILED
