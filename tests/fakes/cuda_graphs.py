"""CUDA graphs of a fake device: what is recorded is a list of torch's operators, repeated on the same memory.

As on a GPU, a replay reads what is in that memory then, a recording ends with an error where it would wait for the
device or read host memory, and what was freed since cannot be read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from fakes.fake_device import FakeDevice

_WAITING = {"item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "lift_fresh"}


class _Freeable:
    """A tensor that does not keep its memory."""

    def __init__(self, tensor: Tensor) -> None:
        self._memory = StorageWeakRef(tensor.untyped_storage())
        self._dtype = tensor.dtype
        self._place = tensor.storage_offset(), tensor.shape, tensor.stride()

    def tensor(self) -> Tensor:
        if self._memory.expired():
            raise RuntimeError("an illegal memory access was encountered")
        memory = torch.UntypedStorage._new_with_weak_ptr(self._memory.cdata)
        return torch.empty(0, dtype=self._dtype).set_(memory, *self._place)


class Recording(TorchDispatchMode):
    """The operators of a block with their tensors."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__()
        self._device = device
        self._own: set[int] = set()
        self._tensors: list[Tensor] = []  # keeps what the graph has made
        self.calls: list[tuple[Callable[..., Any], Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        outside = [each for each in given if _memory(each) not in self._own and each.dim()]
        if func.overloadpacket.__name__ in _WAITING or not all(self._device.has(each) for each in outside):
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        found = func(*args, **(kwargs or {}))
        before = {_memory(each) for each in given}
        for each in tree_leaves(found):
            if isinstance(each, Tensor) and _memory(each) not in before:
                self._own.add(_memory(each))
                self._tensors.append(each)
        made = tree_map(lambda each: each if _made(each, before) else None, found)
        if func._schema.is_mutable or any(each is not None for each in tree_leaves(made)):
            self.calls.append((func, self._held((args, kwargs or {})), made))
        return found

    def _held(self, arguments: Any) -> Any:
        own = self._own
        return tree_map(lambda x: _Freeable(x) if isinstance(x, Tensor) and _memory(x) not in own else x, arguments)


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _made(found: Any, before: set[int]) -> bool:
    """Whether it is a tensor in memory of its own."""
    return isinstance(found, Tensor) and _memory(found) not in before


class FakeGraphs:
    """Takes the place of torch's functions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: FakeDevice) -> None:
        self.recorded = 0
        """Graphs that were recorded."""
        self.replays = 0
        self.alive: WeakSet[_Graph] = WeakSet()
        """Graphs that still have their memory."""
        self.failing: BaseException | None = None
        """What ends the next recordings."""
        self.frozen = False
        """Whether replays do nothing, so that the numbers of the recording stay."""
        self._device = device
        stream = SimpleNamespace(wait_stream=lambda _: None)
        fakes = {
            "CUDAGraph": lambda: _Graph(self),
            "graph": self._graph,
            "graph_pool_handle": object,
            "Stream": lambda: stream,
            "stream": lambda _: nullcontext(),
            "current_stream": lambda: stream,
            "set_stream": lambda _: None,
            "device": lambda _: nullcontext(),
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    @contextmanager
    def _graph(self, graph: "_Graph", *, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
        del pool, stream
        assert capture_error_mode == "thread_local"
        with Recording(self._device) as recording:
            yield
            if self.failing is not None:
                raise self.failing
        self.recorded += 1
        graph.calls = recording.calls
        graph.kept = recording
        self.alive.add(graph)


class _Graph:
    def __init__(self, owner: FakeGraphs) -> None:
        self._owner = owner
        self.calls: list[Any] = []
        self.kept: object = None

    def replay(self) -> None:
        """Repeat all operators; one that gives new memory writes to that of the recording."""
        self._owner.replays += 1
        if self._owner.frozen:
            return
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            for func, held, made in self.calls:
                args, kwargs = tree_map(lambda each: each.tensor() if isinstance(each, _Freeable) else each, held)
                found = func(*args, **kwargs)
                for old, new in zip(tree_leaves(made), tree_leaves(found), strict=True):
                    if old is not None:
                        old.copy_(new)

    def reset(self) -> None:
        self.calls = []
