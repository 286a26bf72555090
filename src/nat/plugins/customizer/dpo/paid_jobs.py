"""Jobs at a service that costs money: submitted once, asked for their status, canceled with the wait."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nat.data_models.finetuning import TrainingJobRef
from nat.errors import BackendError
from nat.finetuning.run_log import current_run
from nat.http.service import ServiceRefused, is_passing
from nat.plugins.customizer.dpo.rows import Dataset
from nat.plugins.customizer.dpo.service import Customizer, Report, job_id_of

logger = logging.getLogger(__name__)

_CANCEL_SECONDS = 10.0


async def submit_job(service: Customizer, dataset: Dataset, *, output_model: str, seed: int) -> TrainingJobRef:
    """Submit the job; if the wait for the answer is canceled, so is the job."""
    creating = asyncio.ensure_future(_created(service, dataset, output_model=output_model, seed=seed))
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        await _cancel_created(service, creating, dataset.name)
        raise


async def until_final(
    check: Callable[[], Awaitable[Report]], *, what: str, seconds: float, interval: float, max_failures: int, hint: str
) -> Report:
    """The final report of what is asked for every `interval` seconds.

    Raises:
        TimeoutError: it was not final within `seconds`.
        BackendError: `max_failures` checks in a row failed, or gave a status that is not known; the job may go on.
        ServiceRefused: the service refuses to give the status, so asking again has no purpose.

    """
    failures, last = 0, ""
    async with asyncio.timeout(seconds):
        while True:
            try:
                report = await check()
                status, problem = report.status, f"the status {report.word!r} is not known"
            except BackendError as error:
                if not is_passing(error):
                    raise
                status, problem = None, error.message
            if status is None:
                failures += 1
                logger.warning("%s: check %d of %d failed: %s", what, failures, max_failures, problem)
                if failures == max_failures:
                    raise BackendError(
                        f"the status of {what} could not be read {failures} times in a row; the last time: {problem}",
                        hint=hint,
                    )
            else:
                failures, text = 0, report.sentence
                if report.progress is not None:
                    text += f", Progress: {report.progress:.1f}%"
                if status.final or text != last:
                    logger.info("%s: %s", what, text)
                if status.final:
                    return report
                last = text
            await asyncio.sleep(interval)


async def cancel_job(service: Customizer, job_id: str) -> None:
    """Cancel the job at the service, and say so."""
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            await service.cancel(job_id)
    except (BackendError, TimeoutError) as error:
        tell_the_user(
            f"Training job {job_id} could not be canceled, so it goes on; cancel it at the service: {error!r}"
        )
    else:
        tell_the_user(f"Training job {job_id} was canceled at the service")


def tell_the_user(text: str) -> None:
    """Warn, also where the run is watched live."""
    run = current_run()
    if run is None:
        logger.warning("%s", text)
    else:
        run.warn(text)


async def _created(service: Customizer, dataset: Dataset, *, output_model: str, seed: int) -> TrainingJobRef:
    """Submit the job; without an answer, look for it, since a second submission would be a second job."""
    try:
        return await service.create_job(dataset, output_model=output_model, seed=seed)
    except BackendError as error:
        if isinstance(error, ServiceRefused) and not is_passing(error):
            raise
        found = await service.find_job(dataset)
        if found is None:
            raise
        logger.warning("The answer to the submission was lost, but job %s was accepted", job_id_of(found))
        return found


async def _cancel_created(service: Customizer, creating: asyncio.Future[TrainingJobRef], name: str) -> None:
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            job = await creating
    except (BackendError, TimeoutError, asyncio.CancelledError) as error:
        tell_the_user(f"It is not known whether the job {name} was accepted ({error!r}); look for it and cancel it")
        return
    await cancel_job(service, job_id_of(job))
