"""What would leave OpenMP's helpers with the main thread is computed in a thread that ends."""

import threading
from contextlib import AbstractContextManager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nat.art.options import ArtServeOptions
from nat.art.server.serve import open_art
from nat.backend.ended_thread import in_ended_thread
from nat.backend.protocol import Endpoint
from nat.backend.serve import open_training
from nat.wire.serving import ServeOptions


class Computed(TorchDispatchMode):
    """Records what this thread computes; a mode holds for one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations.append(str(function))
        return function(*args, **kwargs or {})


def test_the_thread_has_ended_and_had_as_many_helpers():
    """Its result is given, and so is its error."""
    thread, helpers = in_ended_thread(lambda: (threading.current_thread(), torch.get_num_threads()))
    assert thread is not threading.current_thread()
    assert not thread.is_alive()
    assert helpers == torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        in_ended_thread(lambda: 1 / 0)


@pytest.mark.parametrize("protocol", ["own", "art"])
def test_a_backend_opens_without_computing_on_its_main_thread(tiny_dir, tmp_path, protocol):
    """The model is loaded elsewhere."""
    opened: AbstractContextManager
    if protocol == "own":
        opened = open_training(ServeOptions(model=tiny_dir(), output_dir=tmp_path, device="cpu"), Endpoint({}, "k"))
    else:
        options = ArtServeOptions(model=tiny_dir(), output_dir=tmp_path, inference_port=0, device="cpu")
        opened = open_art(options, Endpoint({"port": 1, "inference_port": 2}, "k"))
    with Computed() as seen, opened:
        pass
    assert seen.operations == []
