"""`python -m nat.backend.training.follower DESCRIPTOR`: a rank of the learner, which does what the first one orders."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from typing import Any

from torch import distributed

from nat.backend.failures import explained
from nat.backend.model import LoadedModel
from nat.backend.training import ranks
from nat.backend.training.fast_linear import use_fastest_products
from nat.backend.training.loss import ByRow
from nat.backend.training.optimizer import MasterAdamW
from nat.backend.training.passes import Passes, StepShare, Work
from nat.errors import NatError, UpdateRejected
from nat.secrets import keep_files_private, keep_memory_private

logger = logging.getLogger(__name__)


class Follower:
    """The model of a rank and what it computes with it."""

    def __init__(self, loaded: LoadedModel) -> None:
        use_fastest_products(loaded.model, deterministic=False)
        self.loaded = loaded
        self._weights = loaded.trainable_parameters()
        self._optimizer = MasterAdamW(self._weights)  # sums gradients in float32, and never takes a step
        self._passes = Passes(loaded, self._optimizer)

    def add_up(self, names: list[str]) -> None:
        """Add the gradients of these weights to those of the first rank."""
        ranks.bucketed(self._optimizer.gradients(names), distributed.reduce)
        self._optimizer.zero_grad()

    def compute(self, work: Work, advance: Callable[[], None]) -> tuple[StepShare, list[str]] | ByRow:
        """Get the weights of this round and do the work."""
        ranks.bucketed(self._weights.values(), distributed.broadcast)
        if work.task is None:
            peft = self.loaded.peft
            with nullcontext() if work.adapter or peft is None else peft.disable_adapter():
                return self._passes.scores(self._passes.policy, work.micro_batches, advance)
        self._optimizer.zero_grad()
        return self._passes.gradient(work.micro_batches, work.task, advance), self._optimizer.with_gradient()


def main() -> None:
    """Load the model and follow orders until the pipe ends, as it does with the first rank's process."""
    keep_files_private()
    keep_memory_private()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()
    connection, device = Connection(int(sys.argv[1])), ranks.HOST
    follower: Follower | None = None
    while True:
        try:
            number, order = ranks.receive(connection, device)
        except EOFError:
            return

        def report(kind: str, value: Any = None, number: int = number) -> None:
            ranks.send(connection, (number, kind, value))

        try:
            if follower is None:
                load, join = order
                follower = Follower(load())
                device = follower.loaded.device
                report("ready")
                report("result", join())
                continue
            report("ready")
            if isinstance(order, Work):
                report("result", follower.compute(order, lambda: report("progress")))
            else:
                follower.add_up(order)
        except Exception as error:  # the first rank says what failed where
            logger.exception("the order failed")
            failure = error if isinstance(error, NatError) else explained(error)
            kind = error.kind if isinstance(error, UpdateRejected) else None
            report("failed", (failure.message, failure.hint, kind))


def _end_with_parent() -> None:
    """Wait for the end of stdin, which means that the first rank has ended, and end at once."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    main()
