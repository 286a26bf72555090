"""Steps without prompts as CUDA graphs: a GPU gets all kernels of the layers at once, not one by one from Python.

A graph repeats its kernels on the memory that they had. So there is one for each number of sequences and of keys, both
padded to few, and each step writes its tokens, positions, slots and cells to the graph's own memory. The head and
sampling are computed as always. Graphs are dropped when what they read has moved.

A graph is recorded at the first step of its size. At the second one, where all that changes between steps has changed,
it is compared with the step that Python starts, which is also the one that counts. If a step cannot be recorded or
gives other logits, no more graphs are used for the model.

Shapes: B sequences, V vocabulary, N width.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nat.backend.inference.batch import StepBatch
from nat.backend.inference.plain import PlainBatch
from nat.backend.model import LoadedModel
from nat.backend.model_checks import relative_difference, tolerance_of
from nat.errors import describe_error

logger = logging.getLogger(__name__)

_MOST = 32
"""Graphs at a time; the driver keeps some kilobytes for each kernel of each."""
_WAITING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Of operators for which the processor waits for numbers of the device."""


@dataclass
class _Graph:
    """A recorded step."""

    step: StepBatch
    """It holds the memory of what changes between steps."""
    replay: Callable[[], None]
    states_BN: Tensor
    """Hidden states after a replay."""
    proven: bool = False


class DecodeGraphs:
    """The graphs of one engine; does nothing on other devices than CUDA ones."""

    def __init__(self, loaded: LoadedModel, max_num_seqs: int) -> None:
        self._loaded = loaded
        self._max_num_seqs = max_num_seqs
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._reads: tuple[object, ...] = ()
        """States of what the graphs read."""
        self._place: tuple[Any, Any] | None = None
        """The stream on which graphs are recorded, and the memory that they share: they run one after another."""

    def clear(self) -> None:
        """Drop all graphs, and with them their memory."""
        self._graphs.clear()
        self._place = None

    def takes(self, batch: StepBatch | PlainBatch, running: int) -> TypeGuard[StepBatch]:
        """Whether the step may be a graph: all running sequences decode, so the slots after them are free."""
        possible = self._loaded.device.type == "cuda" and not self._loaded.no_graphs
        return possible and isinstance(batch, StepBatch) and batch.only_decodes and len(batch.order) == running

    def logits(self, batch: StepBatch) -> Tensor:
        """Logits [B, V] after each sequence's token."""
        replayed_BV, graph = None, None
        try:
            graph = self._graph(batch)
            if graph is not None:
                graph.step.refill(batch)
                graph.replay()
                replayed_BV = self._loaded.sampler_head(graph.states_BN[: len(batch.order)])
                if graph.proven:
                    return replayed_BV
        except Exception as error:  # noqa: BLE001 - whatever a device or a model lacks, Python starts the kernels
            self._give_up(describe_error(error))
        usual_BV = self._loaded.sampler_logits(batch, batch.last_K)
        if replayed_BV is not None and graph is not None:
            difference, most = relative_difference(replayed_BV, usual_BV), tolerance_of(self._loaded.model)
            graph.proven = difference <= most
            if not graph.proven:
                self._give_up(f"logits differ by {difference:.1e} of the largest; rounding explains at most {most:.0e}")
        return usual_BV

    def _graph(self, batch: StepBatch) -> _Graph | None:
        step = 1 << max(0, (len(batch.order) - 1).bit_length() - 2)
        padded = -(-len(batch.order) // step) * step  # powers of two, and the numbers halfway between them
        size = min(self._max_num_seqs, padded), batch.longest
        reads = batch.cache.state, self._loaded.linears.state
        if reads != self._reads or (size not in self._graphs and len(self._graphs) >= _MOST):
            self._graphs.clear()
        if size in self._graphs:
            return self._graphs[size]
        recorded = self._recorded(batch, size[0])
        self._reads = batch.cache.state, self._loaded.linears.state  # the cache may have grown
        self._graphs[size] = recorded
        return None

    def _recorded(self, batch: StepBatch, count: int) -> _Graph:
        """Compute a step twice: first as always, which prepares what is prepared once, then for the graph."""
        with torch.cuda.device(self._loaded.device):
            usual, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
            self._place = self._place or (torch.cuda.Stream(), torch.cuda.graph_pool_handle())  # type: ignore[no-untyped-call]
            stream, pool = self._place
            rehearsed, step = batch.repeatable(count), batch.repeatable(count)  # each has masks of its own
            stream.wait_stream(usual)
            try:
                with torch.cuda.stream(stream), _NoWaiting():
                    self._loaded.sampler_states(rehearsed)
                # not global: another thread may read weights for a checkpoint meanwhile
                with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                    states_BN = self._loaded.sampler_states(step)
            except BaseException:
                graph.reset()
                raise
            finally:
                torch.cuda.set_stream(usual)  # torch does not where a recording cannot be ended
                usual.wait_stream(stream)
            return _Graph(step, graph.replay, states_BN)

    def _give_up(self, why: str) -> None:
        self.clear()
        if not self._loaded.no_graphs:
            logger.warning("the sampler does without CUDA graphs, so its steps take longer: %s", why)
        self._loaded.no_graphs.append(why)


class _NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types for it
    """Raises where a step waits for the device: a graph cannot, and torch may not recover from an attempt."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the same

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        with self:  # also the parts that an operator is made of
            found = func.decompose(*args, **(kwargs or {}))
        if found is not NotImplemented:
            return found
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        waits = not _WAITING.isdisjoint(func.tags)
        if func.overloadpacket is torch.ops.aten.index:  # by a mask
            waits = any(each.dtype == torch.bool for each in tensors[1:])
        found = None if waits else func(*args, **(kwargs or {}))
        tensors += [each for each in tree_leaves(found) if isinstance(each, Tensor)]
        if waits or len({each.device.type for each in tensors if each.dim()}) > 1:
            raise RuntimeError(f"{func} waits for the device")
        return found
