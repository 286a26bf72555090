"""The end of a run that failed or was interrupted: what it has trained is judged, kept and summarised."""

import asyncio
import logging
from asyncio import CancelledError
from dataclasses import replace

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
from nat.finetuning.run_context import RunContext
from nat.finetuning.summary import compared, summarise
from nat.finetuning.validation import no_verdict, validate
from nat.runs.journal import Journal
from nat.runs.preemption import Preempted, resume_command
from nat.runs.records import RunState, after_epoch
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

SECONDS_AFTER_INTERRUPT = 6.0
"""Time for a validation after Ctrl-C, for which a user waits; what is missing can be played later."""

_CANNOT_BE_JUDGED = (BackendUnreachable, EvaluationError, JournalError, StorageError, OSError)
"""After these errors, a validation would fail as well."""


async def judge_after(error: BaseException, trainer: Trainer, run: RunContext) -> None:
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


async def _judged(trainer: Trainer, epochs: int, run: RunContext, limit: float | None) -> str | None:
    """Validate; returns why that failed."""
    # In a task of its own, since a task that was cancelled cannot tell a further cancellation from the first.
    task = asyncio.create_task(validate(trainer, epochs, replace(run, total_epochs=epochs)))
    try:
        async with asyncio.timeout(limit):
            await task
    except TimeoutError:
        return f"the validation did not end within {limit:g} s"
    except Exception as second:
        logger.debug("the validation failed, too", exc_info=True)
        return describe_error(second)
    return None


async def summarised(error: BaseException, run: RunContext, *, seconds: float) -> list[str]:
    """Write the summary of a run that ended by an error; returns it for people: verdict, saved results, causes.

    That of a run that was preempted has no plot and no causes, which take time.
    """
    journal, run_dir, preempted = run.journal, shown(run.journal.run_dir), isinstance(error, Preempted)
    try:
        best, epochs, validations = journal.best(), journal.epochs(), journal.validations()
        judged = validations[-1].epoch if validations else 0
        causes = [] if preempted else await findings_of(run_dir, ended=True)
        comparison = compared(validations, judged)
        summary = summarise(
            run.run_id,
            comparison,
            journal.jobs(),
            played=epochs,
            validations=validations,
            epochs=len(epochs),
            judged_epoch=judged,
            state=_state_after(error),
            ended_early=_reason(error),
            seconds=seconds,
            model=None,
            best=best,
            best_model=BEST_MODEL if (run_dir / BEST_MODEL).is_dir() else None,
            causes=causes,
            phases=journal.phases(),
            budget=budget_of(journal),
        )
        if preempted:
            run.append(summary)
        else:
            await run.record_summary(summary)
        run.write_files()
    except (OSError, NatError) as second:  # the journal may be gone, and the run may have ended because of that
        if not isinstance(second, JournalError):
            logger.error("the run's summary could not be written: %s", describe_error(second))
        return saved_results(run_dir, None)
    verdict = [] if comparison is None else [f"Verdict {after_epoch(judged)}: {comparison.sentence}"]
    news = [cause for cause in causes if cause.seen not in str(error)]
    can_go_on = isinstance(error, CancelledError | BackendUnreachable)
    goes_on = [f"Go on with the run: {resume_command(run_dir)}"] if can_go_on else []
    return [*verdict, *saved_results(run_dir, best), *explanation(news, run_dir), *goes_on]


def end_after(error: BaseException, run: RunContext) -> None:
    """Record how the run ended; a failing disk must not hide why."""
    try:
        run.end(_state_after(error), _reason(error))
    except (OSError, NatError) as second:
        if isinstance(error, JournalError) and isinstance(second, JournalError):
            return  # the run has ended because the journal cannot be written
        logger.error("the run's end could not be recorded: %s", describe_error(second))


def _state_after(error: BaseException) -> RunState:
    """How a run ends by this error."""
    if isinstance(error, Preempted):
        return RunState.INTERRUPTED
    return RunState.CANCELED if isinstance(error, CancelledError | KeyboardInterrupt) else RunState.FAILED


def _reason(error: BaseException) -> str:
    """The error in the run's record."""
    return str(error) or ("canceled" if isinstance(error, CancelledError) else type(error).__name__)
