"""What happens to a training job, kept for clients that ask again and again instead of listening."""

import logging

from nat.art.server.port import RunningCall
from nat.art.server.stream import metrics_of
from nat.art.wire import ServerlessEvent
from nat.backend.failures import explained
from nat.errors import NatError

logger = logging.getLogger(__name__)


class JobEvents:
    """The events of one job so far, oldest first; the first one tells how many steps there will be."""

    def __init__(self) -> None:
        self.events: list[ServerlessEvent] = []

    async def follow(self, call: RunningCall) -> None:
        """Turn each step into an event, and the end of the call into a last one."""
        try:
            async for metrics in metrics_of(call):
                if not self.events:
                    self._add("training_started", num_sequences=metrics["num_gradient_steps"])
                if metrics["num_gradient_steps"]:
                    self._add("gradient_step", **metrics)
        except NatError as error:
            self._add("training_failed", error_message=str(error))
        except Exception as error:  # the boundary of a job: the client hears of it, whatever it is
            logger.exception("job %s failed", call.job_id)
            self._add("training_failed", error_message="; ".join(explained(error)))
        else:
            self._add("training_ended")

    def _add(self, kind: str, **data: float | str) -> None:
        event = {"id": str(len(self.events) + 1), "type": kind, "data": data}
        self.events.append(ServerlessEvent.model_validate(event))
