"""How many kernels a GPU would start for a token, counted as torch's operators on a device that is no CPU."""

from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fakes.cuda_graphs import FakeGraphs
from fakes.fake_device import FakeDevice
from fakes.listeners import one
from fakes.tiny_model import make_tiny_model
from nat.backend.inference.engine import Engine
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model

MOST_BESIDE_A_GRAPH = 20
"""Kernels that Python starts for a step beside that of a graph: 16 are for sampling."""


class Kernels(TorchDispatchMode):
    """Counts the operators that compute or copy, by name: views of their input, and empty tensors, start no kernel."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        made = {memory_of(each) for each in tree_leaves(found) if isinstance(each, Tensor)}
        given = {memory_of(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        if (made - given or func._schema.is_mutable) and "empty" not in func.name():
            self.names[func.overloadpacket.__name__] += 1
        return found


def memory_of(tensor):
    return tensor.untyped_storage()._cdata


def kernels_of_a_step(path, **options) -> int:
    """Those that Python starts in a step in which three sequences get a token each."""
    loaded = load_model(path, device="cuda", dtype="bfloat16", **options)
    engine = Engine(loaded, policy_version="m@0")
    for seed in range(3):
        engine.add(one(list(range(5, 15 + seed)), max_tokens=8, seed=seed, ignore_eos=True))
    for _ in range(5):
        engine.step()
    with Kernels() as kernels:
        engine.step()
    return kernels.names.total()


@pytest.fixture
def cuda(monkeypatch):
    """A GPU with 8 GB; its own kernel for packed rows fails, so padded attention takes its place."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("nat.backend.inference.engine.free_bytes", lambda _: 8 * 10**9)
    with FakeDevice("cuda") as fake:
        yield fake


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same model with two layers and with four."""
    return [make_tiny_model(tmp_path_factory.mktemp("qwen3"), "qwen3", layers=layers) for layers in (2, 4)]


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("options", "most"), [({}, 33), ({"lora": LoraSettings(4)}, 56)], ids=["all weights", "lora"])
def test_a_layer_starts_few_kernels_for_a_token(folders, options, most):
    """A layer of Qwen3, with all weights and with adapters: a GPU waits for each of them to be started.

    transformers' layers start 56 and 98.
    """
    shallow, deep = (kernels_of_a_step(folder, **options) for folder in folders)
    assert (deep - shallow) / 2 <= most


@pytest.mark.parametrize("options", [{}, {"lora": LoraSettings(4)}], ids=["all weights", "lora"])
def test_a_graph_leaves_a_few_kernels_to_python(cuda, folders, monkeypatch, options):
    """Copies of what a step needs, the head and sampling, however many layers there are; the layers start as one."""
    graphs = FakeGraphs(monkeypatch, cuda)
    assert [kernels_of_a_step(folder, **options) for folder in folders] == [MOST_BESIDE_A_GRAPH] * 2
    assert graphs.replays == 2 * 4
