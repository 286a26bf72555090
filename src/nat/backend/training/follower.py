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
from nat.backend.training.checkpointing import Checkpointing
from nat.backend.training.fast_linear import use_fastest_products
from nat.backend.training.loss import ByRow
from nat.backend.training.optimizer import MasterAdamW
from nat.backend.training.passes import Passes, StepShare, Work
from nat.backend.training.shards import give, shard, take
from nat.errors import NatError, UpdateRejected
from nat.secrets import keep_files_private, keep_memory_private

logger = logging.getLogger(__name__)


class Follower:
    """The model of a rank and what it computes with it."""

    def __init__(self, loaded: LoadedModel, join: Callable[[], distributed.ProcessGroup | None]) -> None:
        use_fastest_products(loaded.model, deterministic=False)
        self.loaded, self._dtype = loaded, loaded.dtype
        checkpointing = Checkpointing(loaded.model)
        self._shards = join()
        if self._shards is not None:
            checkpointing.bytes_per_token  # noqa: B018 - measured while the weights are no activations
            shard(loaded.model, self._shards)
        self._weights = loaded.trainable_parameters()
        self._optimizer = MasterAdamW(self._weights)  # sums gradients in float32, and never takes a step
        self._passes = Passes(loaded, self._optimizer, checkpointing=checkpointing)

    def add_up(self, names: list[str]) -> None:
        """Add the gradients of these weights to those of the first rank."""
        gradients = self._optimizer.gradients(names)
        if self._shards is None:
            ranks.bucketed(gradients, distributed.reduce)
        else:
            give(gradients)
        self._optimizer.zero_grad()

    def compute(self, work: Work, advance: Callable[[], None]) -> tuple[StepShare, list[str]] | ByRow:
        """Get the weights of this round and do the work."""
        if self._shards is None:
            ranks.bucketed(self._weights.values(), distributed.broadcast)
        else:
            take(self._weights.values(), self._dtype)
        if work.task is None:
            peft = self.loaded.peft
            with nullcontext() if work.adapter or peft is None else peft.disable_adapter():
                found = self._passes.scores(self._passes.policy, work.micro_batches, advance)
                self._passes.scores(self._passes.policy, work.idle, advance)
                return found
        self._optimizer.zero_grad()
        share = self._passes.gradient(work.micro_batches, work.task, advance)
        self._passes.idle(work.idle, work.task, advance)
        return share, self._optimizer.with_gradient()


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
                loaded = load()
                device = loaded.device
                report("ready")
                follower = Follower(loaded, join)
                report("result")
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
