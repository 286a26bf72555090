"""The answer to a training call: one JSON object per gradient step, and a cut connection if it fails.

Clients look for no error inside of the stream, so none is written there: a body that ends without its last chunk is
how they learn of a failure. The first header goes out before training begins.
"""

import json
import logging
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from nat.art.server.metrics import stream_metrics
from nat.art.server.port import RunningCall
from nat.art.wire import JOB_ID_HEADER
from nat.errors import TrainingFailed

logger = logging.getLogger(__name__)


class TrainingStream(StreamingResponse):
    """Streams a call's metrics, without a Content-Type as ART's servers do; cancels the call if the client goes."""

    def __init__(self, call: RunningCall) -> None:
        super().__init__(_lines(call), headers={JOB_ID_HEADER: call.job_id})
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except TrainingFailed:
            # The job has logged why; an answer without its last chunk is closed by the server, without a traceback.
            logger.warning("the answer to training call %s is cut off, so that its client notices", self._call.job_id)
        finally:
            self._call.cancel()


async def metrics_of(call: RunningCall) -> AsyncIterator[dict[str, float]]:
    """Each gradient step in the names that clients of all versions know."""
    async for step in call:
        yield stream_metrics(step, call.facts, int(step["num_gradient_steps"]), call.config.learning_rate)


async def _lines(call: RunningCall) -> AsyncIterator[bytes]:
    async for metrics in metrics_of(call):
        yield json.dumps(metrics, allow_nan=False).encode() + b"\n"
