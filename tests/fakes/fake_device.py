"""A device that this machine does not have: its tensors are in host memory, and say that they are not.

While the mode is on, a tensor that was made on the device, or from one that was, names it as its device. As on the
device, tensors of both places do not mix, and numpy reads host memory only. What torch's
engine makes in a backward pass has no place until it meets a tensor that has one.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

_BOTH_PLACES = {"copy_", "__getitem__", "__setitem__", "to", "cpu", "__set__"}
"""Functions whose tensors may be in different places."""

_NO_COMPUTATION = {"device", "_parse_to", "_has_compatible_shallow_copy_type"}

_ASKS_WHERE: dict[Any, Callable[[torch.device], Any]] = {
    Tensor.device.__get__: lambda device: device,
    Tensor.is_cpu.__get__: lambda _: False,
    Tensor.is_cuda.__get__: lambda device: device.type == "cuda",
}


class FakeDevice(TorchFunctionMode):
    """A device of this type, such as `cuda`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.device = torch.device(kind)
        self._on_device: dict[int, tuple[StorageWeakRef, bool]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def has(self, tensor: Tensor) -> bool | None:
        """Whether the tensor is on the device; None if it has no place."""
        with torch._C.DisableTorchFunction():
            reference, on_device = self._on_device.get(StorageWeakRef(tensor.untyped_storage()).cdata, (None, None))
        return None if reference is None or reference.expired() else on_device

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in _NO_COMPUTATION:
            return func(*args, **kwargs)
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        places = {self.has(each) for each in inputs}
        if True in places and func in _ASKS_WHERE:
            return _ASKS_WHERE[func](self.device)
        self._check(name, inputs)
        wanted = [self._place(each) for each in tree_leaves((args, kwargs))] + [False] * (name == "cpu")
        place = next((each for each in wanted if each is not None), None)
        result = func(*tree_map(self._as_host, args), **tree_map(self._as_host, kwargs))
        if place is not None and place not in places and any(result is each for each in inputs):
            result = result.clone()  # the memory of both is the same, so torch copied nothing
        if place is None and places != {None}:
            place = True in places
        for each in tree_leaves(result if name != "__set__" else ()):
            if isinstance(each, Tensor) and place is not None:
                self._mark(each, place, name, moved=True in places)
        return result

    def _check(self, name: str, inputs: list[Tensor]) -> None:
        """Raise what the device would."""
        if any(map(self.has, inputs)) and (name == "numpy" or "for_cpu" in name):
            raise TypeError(f"{name} reads host memory; this tensor is on {self.device}")
        if {True, False} <= {self.has(each) for each in inputs if each.dim()} and name not in _BOTH_PLACES:
            raise RuntimeError(f"{name} got tensors on {self.device} and on the cpu")

    def _mark(self, tensor: Tensor, place: bool, name: str, *, moved: bool) -> None:
        """Note where a tensor is."""
        with torch._C.DisableTorchFunction():
            reference = StorageWeakRef(tensor.untyped_storage())
        self._on_device[reference.cdata] = reference, place

    def _place(self, argument: Any) -> bool | None:
        """Whether an argument names this device; None if it names none."""
        if isinstance(argument, torch.device):
            return argument.type == self.device.type
        if isinstance(argument, str) and argument.partition(":")[0] in {"cpu", self.device.type}:
            return argument != "cpu"
        return None

    def _as_host(self, argument: Any) -> Any:
        return torch.device("cpu") if self._place(argument) else argument
