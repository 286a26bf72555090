"""Checkpoints are compared byte by byte, in each precision."""

import pytest
import torch
from safetensors.torch import save_file

from nat.plugins.local.checkpoint_tensors import compared_checkpoints


def checkpoint(folder, weights, **state):
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    save_file(state, folder / "optimizer.safetensors")
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_measured_by_the_learning_rates(tmp_path, dtype):
    """The root mean square of the difference over the most that the update could move a weight."""
    weights = {"a": torch.ones(4, dtype=dtype), "b": torch.ones(2, dtype=dtype)}
    ours = checkpoint(tmp_path / "ours", weights | {"a": torch.tensor([1.5, 0.5, 1.5, 0.5], dtype=dtype)})
    theirs = checkpoint(tmp_path / "theirs", weights)
    found = compared_checkpoints(ours, theirs, reach=0.25)
    assert (found.tensors, found.differing, found.largest, found.relative) == (2, 1, "a", 2.0)


def test_state_is_measured_by_its_own_size(tmp_path):
    """Counts and moments are no weights; masters are."""
    weights = {"a": torch.ones(1)}
    state = {"average.a": torch.full((2,), 4.0), "master.a": torch.ones(2)}
    theirs = checkpoint(tmp_path / "theirs", weights, **state)
    ours = checkpoint(tmp_path / "ours", weights, **state | {"average.a": torch.full((2,), 3.0)})
    assert compared_checkpoints(ours, theirs, reach=0.5).relative == 0.25
    other = checkpoint(tmp_path / "other", weights, **state | {"master.a": torch.full((2,), 3.0)})
    assert compared_checkpoints(other, theirs, reach=0.5).relative == 4.0


def test_a_tensor_that_is_missing_differs(tmp_path):
    theirs = checkpoint(tmp_path / "theirs", {"a": torch.ones(1), "b": torch.ones(1)})
    found = compared_checkpoints(checkpoint(tmp_path / "ours", {"a": torch.ones(1)}), theirs, reach=1.0)
    assert (found.differing, found.largest, found.relative) == (1, "b", float("inf"))
    assert compared_checkpoints(theirs, theirs, reach=1.0).differing == 0
