"""Jobs at a service that costs money: submitted once, waited for within a deadline, canceled with the wait."""

import asyncio
import logging

from nat.data_models.finetuning import TrainingStatusEnum
from nat.errors import BackendError, TrainingFailed
from nat.finetuning.run_context import current_run
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig
from nat.plugins.customizer.dpo.connection import ServiceRefused
from nat.plugins.customizer.dpo.polling import PolledStatus, until_final
from nat.plugins.customizer.dpo.service import JobOrder, JobRef, JobReport, TrainingService

logger = logging.getLogger(__name__)

_CANCEL_SECONDS = 10.0
_FINAL = (TrainingStatusEnum.COMPLETED, TrainingStatusEnum.FAILED, TrainingStatusEnum.CANCELED)


class PaidJobs:
    """The jobs of one adapter at its service."""

    def __init__(self, service: TrainingService, config: NeMoCustomizerTrainerAdapterConfig) -> None:
        self._service = service
        self._config = config

    async def create(self, order: JobOrder) -> JobRef:
        """Submit the job; if the wait for the answer is canceled, so is the job."""
        creating = asyncio.ensure_future(self._created(order))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            await self._cancel_created(creating, order)
            raise

    async def final(self, job_id: str, interval: float) -> JobReport:
        """Wait for the job's end, and give its last report; canceling the wait cancels the job.

        Raises:
            TrainingFailed: the job was not done in time, and was canceled.
            BackendError: the status could not be read several times in a row, and the job goes on.

        """
        seconds = self._config.training_timeout_seconds

        async def check() -> PolledStatus[JobReport]:
            report = await self._service.report(job_id)
            if report.status is None:
                return PolledStatus("", problem=f"the status {report.word!r} is not known")
            progress = "" if report.progress is None else f", Progress: {report.progress:.1f}%"
            return PolledStatus(f"{report.sentence}{progress}", result=report if report.status in _FINAL else None)

        try:
            async with asyncio.timeout(seconds):
                return await until_final(
                    check,
                    what=f"training job {job_id}",
                    interval=interval,
                    max_failures=self._config.max_consecutive_status_failures,
                    hint="the job goes on; when the service answers again, take it up with `resume` of the trainer",
                )
        except TimeoutError:
            await self._cancel(job_id)
            raise TrainingFailed(
                f"training job {job_id} was not done within {seconds:g} s",
                hint="raise `training_timeout_seconds` of the trainer adapter, or train on fewer pairs or epochs",
            ) from None
        except asyncio.CancelledError:
            await self._cancel(job_id)
            raise

    async def _created(self, order: JobOrder) -> JobRef:
        """Submit the job; without an answer, look for it, since a second submission would be a second job."""
        try:
            return await self._service.create_job(order)
        except BackendError as error:
            if isinstance(error, ServiceRefused) and not error.passing:
                raise
            found = await self._service.find_job(order.name)
            if found is None:
                raise
            logger.warning("The answer to the submission was lost, but job %s was accepted", found.job_id)
            return found

    async def _cancel_created(self, creating: asyncio.Future[JobRef], order: JobOrder) -> None:
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                job = await creating
        except (BackendError, TimeoutError, asyncio.CancelledError) as error:
            tell_the_user(
                f"It is not known whether the job {order.name} was accepted ({error!r}); look for it and cancel it"
            )
            return
        await self._cancel(job.job_id)

    async def _cancel(self, job_id: str) -> None:
        """Cancel the job at the service, and say so."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._service.cancel(job_id)
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
