"""Each kind of unexpected error has its own remedy."""

import errno

import pytest
import torch

from nat.backend.failures import explained

CPU = "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU)])
def test_memory(error):
    """For each of torch's out-of-memory messages, the hint names the options to lower."""
    assert "micro_batch_tokens" in explained(error).hint


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "", "x"), RuntimeError("I/O error (os error 28)")])
def test_disks(error):
    """A full disk has another remedy than a lack of memory."""
    assert "No space left" in explained(error).message
    assert "free some space" in explained(error).hint
