"""The other ranks of a learner: child processes, one a device, each with a copy of the model.

They compute passes and decide nothing. Before each round of passes they get the weights to use, afterwards their
gradients are summed into this process's, both by torch's collectives; what to compute and what was found go through
pipes. So a rank has no state that an update could leave half-changed: to undo one, this process restores its own
weights. A rank that fails ends the round with an error; if it has died or hangs, all end, and the next update starts
them anew.
"""

import io
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import accumulate, groupby
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, distributed

from nat.backend.model import LoadedModel
from nat.backend.training.optimizer import MasterAdamW
from nat.backend.training.shards import collect, hand_out
from nat.errors import TrainingFailed, UpdateRejected
from nat.files import log_tail, private_log
from nat.processor_time import LOOK_SECONDS, Patience

logger = logging.getLogger(__name__)

HOST = torch.device("cpu")
_BUCKET = 2**20
"""Numbers of small tensors that one collective takes together."""
_LOADING_SECONDS = 120.0
"""In which a rank may do nothing while it starts and loads its model."""
_BOUND_SECONDS = 1800.0
"""In which a rank may work for its next message; also those of a collective."""
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class Follower:
    """A rank's process; its messages are of an order's number, a kind and a value."""

    rank: int
    device: str
    process: subprocess.Popen[bytes]
    connection: Connection
    log: Path

    def __str__(self) -> str:
        return f"rank {self.rank} of the learner (process {self.process.pid}, log {self.log})"

    def end(self) -> str:
        """How it has ended; it gets a second to do so."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "has closed its connection"
        return f"has died of signal {-code}" if code < 0 else f"has died with exit code {code}"


class Ranks:
    """The ranks 1 to `count` - 1; only the model thread uses them, once they were started."""

    def __init__(
        self,
        load: Callable[..., LoadedModel],
        device_type: str,
        count: int,
        *,
        logs: Path,
        shards: bool = False,
        idle_seconds: float = 60.0,
    ) -> None:
        """`load` takes a `device`, and can be pickled; a rank that does nothing for `idle_seconds` has failed.

        With `shards`, these ranks hold the model together, and compute all passes.
        """
        self.count = count
        self.shards = shards
        self._load = load
        self._device_type = device_type
        self._logs = logs
        self._idle_seconds = idle_seconds
        self.followers: list[Follower] = []
        self._order = 0

    def start(self) -> None:
        """Start the processes unless all run, and wait until each has loaded its model.

        Raises:
            TrainingFailed: one could not.

        """
        if (ended := self._ended()) is not None:
            logger.warning("%s %s; all ranks are started again", ended, ended.end())
            self.stop()
        if self.followers:
            return
        logger.info("starting %d more ranks of the learner; their logs are in %s", self.count - 1, self._logs)
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            self.followers = [self._started(rank) for rank in range(1, self.count)]
            with tempfile.TemporaryDirectory(prefix="nat-ranks-") as folder:
                meet = partial(join, f"{folder}/ranks", self.count, self._device_type, self.shards)
                orders = [(partial(self._load, device=f.device), partial(meet, f.rank)) for f in self.followers]
                self._together(orders, partial(meet, 0), idle=_LOADING_SECONDS)
                self.results()  # each reads the file until it has joined
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the processes."""
        for follower in self.followers:
            with follower.process as process:  # closes its pipe and waits for its end
                process.kill()
            follower.connection.close()
        self.followers = []
        if distributed.is_initialized():
            distributed.destroy_process_group()

    def begin(self, works: Sequence[object], weights: Sequence[Tensor]) -> None:
        """Let each rank compute its work with these weights; this process computes its own share meanwhile.

        Raises:
            TrainingFailed: a rank has died, hangs or failed.

        """
        self.start()
        give = partial(hand_out, weights) if self.shards else partial(bucketed, weights, distributed.broadcast)
        self._together(works, give)

    def results(self, advance: Callable[[], None] = lambda: None) -> list[Any]:
        """Wait for what each rank found; `advance` is called for each of their micro-batches."""
        return [self._await(follower, "result", advance) for follower in self.followers]

    def sum(self, names: list[str], optimizer: MasterAdamW) -> None:
        """Add the ranks' gradients of these weights to those of the optimizer."""
        if self.shards:
            add = partial(collect, names, optimizer, torch.device(self._device_type))
        else:
            add = partial(bucketed, optimizer.gradients(names), distributed.reduce)
        self._together([names] * len(self.followers), add)

    def _started(self, rank: int) -> Follower:
        ours, theirs = Pipe()
        log = self._logs / f"rank_{rank}.log"
        with theirs, private_log(log) as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nat.backend.training.follower", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // self.count))},
            )
        device = f"cuda:{rank}" if self._device_type == "cuda" else self._device_type
        return Follower(rank, device, process, ours, log)

    def _together(
        self, orders: Sequence[object], collective: Callable[[], object], *, idle: float | None = None
    ) -> None:
        """Send orders, and take part in a collective once each rank is ready for it; if it fails, end all ranks."""
        self._send(orders)
        for follower in self.followers:
            self._await(follower, "ready", idle=idle)
        try:
            collective()
        except (RuntimeError, ValueError) as error:
            first = self._ended() or self.followers[0]
            raise self._lost(first, f"{first.end()}: {error}") from error

    def _send(self, orders: Sequence[object]) -> None:
        self._order += 1
        for follower, order in zip(self.followers, orders, strict=True):
            try:
                send(follower.connection, (self._order, order))
            except OSError:
                raise self._lost(follower, follower.end()) from None

    def _await(
        self, follower: Follower, kind: str, advance: Callable[[], None] = lambda: None, *, idle: float | None = None
    ) -> Any:
        """The value of the next message of this kind; what is left of an earlier order is dropped."""
        waits = follower.process.pid, idle or self._idle_seconds, _BOUND_SECONDS
        patience = Patience(*waits)
        while not patience.ended():
            try:
                if not follower.connection.poll(LOOK_SECONDS):
                    continue
                order, found, value = receive(follower.connection, torch.device(self._device_type))
            except (EOFError, OSError):
                raise self._lost(follower, follower.end()) from None
            patience = Patience(*waits)
            if order != self._order:
                continue
            if found == "failed":
                if self.shards:  # the others wait for it inside a collective, or it waited for one that has died
                    if (ended := self._ended()) is not None:
                        raise self._lost(ended, ended.end())
                    self.stop()
                _fail(follower, *value)
            if found == kind:
                return value
            advance()
        raise self._lost(follower, f"{'or another that it waits for ' if self.shards else ''}hangs: {patience}")

    def _ended(self) -> Follower | None:
        return next((each for each in self.followers if each.process.poll() is not None), None)

    def _lost(self, follower: Follower, what: str) -> TrainingFailed:
        """End all ranks, and give the error."""
        text = f"{follower} {what}; the end of its log:\n{log_tail(follower.log)}"
        self.stop()
        return TrainingFailed(text, hint="all ranks start again at the next update; resume the run if it has ended")


def send(connection: Connection, value: object) -> None:
    """Send tensors and what holds them; they do not stay on their devices, as those of `Connection.send` would."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    connection.send_bytes(buffer.getbuffer())


def receive(connection: Connection, device: torch.device) -> Any:
    """Wait for what was sent, and put its tensors on this device."""
    return torch.load(io.BytesIO(connection.recv_bytes()), device, weights_only=False)


def join(file: str, size: int, device_type: str, shards: bool, rank: int) -> distributed.ProcessGroup | None:
    """Join the process group, which meets at a file; its sockets are on the loopback interface only.

    With `shards`, all but the first rank get the group of those that hold them.
    """
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ[name] = _LOOPBACK
    distributed.init_process_group(
        "nccl" if device_type == "cuda" else "gloo",
        init_method=f"file://{file}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=_BOUND_SECONDS),
    )
    group = distributed.new_group(list(range(1, size))) if shards else None
    return group if isinstance(group, distributed.ProcessGroup) else None  # the first rank is in none


@torch.no_grad()
def bucketed(tensors: Iterable[Tensor], collective: Callable[[Tensor, int], object]) -> None:
    """Run a collective from or to the first rank over tensors in place; small neighbours of one type go as one."""
    tensors = list(tensors)
    starts = accumulate((tensor.numel() for tensor in tensors), initial=0)
    keys = [(t.dtype, start // _BUCKET, t.numel() >= _BUCKET) for t, start in zip(tensors, starts, strict=False)]
    for _, places in groupby(range(len(tensors)), keys.__getitem__):
        bucket = [tensors[place] for place in places]
        if len(bucket) == 1 and bucket[0].is_contiguous():
            collective(bucket[0].detach(), 0)
            continue
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        collective(flat, 0)
        for tensor, part in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
            tensor.copy_(part.view_as(tensor))


def _fail(follower: Follower, message: str, hint: str, kind: str | None = None) -> NoReturn:
    if kind is not None:
        raise UpdateRejected(f"{follower}: {message}", kind=kind, hint=hint)
    raise TrainingFailed(f"{follower} failed: {message}", hint=hint)
