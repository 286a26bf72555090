"""The free memory of a machine and of a container."""

import pytest
import torch

from nat.backend import memory
from nat.backend.memory import free_bytes, room_for

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("limit", "anon", "free"),
    [(None, 0, 2048 * 1024), ("max", 0, 2048 * 1024), ("1000000", 400_000, 600_000), ("1000000", 2_000_000, 0)],
)
def test_the_smaller_of_machine_and_container_counts(tmp_path, limit, anon, free):
    """A container may use less than the machine has free; its page cache can be dropped."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9999 kB\nMemAvailable:    2048 kB\nHugePages_Free: 0\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.stat").write_text(f"anon {anon}\nfile 123456\n")
    assert free_bytes(CPU, meminfo=meminfo, cgroup=tmp_path) == free


@pytest.mark.parametrize(("needed", "room"), [(100, 100), (101, 300), (400, 300)])
def test_freed_pages_count_as_room(monkeypatch, needed, room):
    """They are returned if that many bytes are not free already; so no update is refused because of them."""
    free = 100

    def returned():
        nonlocal free
        free = 300

    monkeypatch.setattr(memory, "free_bytes", lambda _: free)
    monkeypatch.setattr(memory, "return_free_pages", returned)
    assert room_for(needed, CPU) == room
