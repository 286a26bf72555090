"""Which device `auto` means, how much memory a device has, and how much is left."""

import ctypes
import sys
from pathlib import Path

import torch

from nat.errors import ModelNotSupported

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_STATUS = Path("/proc/self/status")
_HOST = torch.device("cpu")


def chosen_device(name: str) -> torch.device:
    """The device of the option: `auto` means CUDA if there is CUDA, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise ModelNotSupported(
            f"device {name}: there is no CUDA device here that this torch {torch.__version__} ({built}) can use",
            hint="set device to cpu or auto; or check the driver (nvidia-smi) and install a CUDA build of torch",
        )
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ModelNotSupported(
            f"device {name}: torch sees {count} CUDA devices here, from cuda:0 to cuda:{count - 1}",
            hint="set device to one of these, or check CUDA_VISIBLE_DEVICES",
        )
    return device


def return_free_pages() -> None:
    """Return the pages of freed memory to the system; glibc by itself returns only what lies at the end of its heap."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def free_bytes(device: torch.device, *, meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Bytes that could still be allocated, caches that can be dropped included; None if the system does not tell."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    if device.type != "cpu" or not meminfo.is_file():
        return None
    free = _fields(meminfo)["MemAvailable:"] * 1024
    limit = cgroup / "memory.max"
    if limit.is_file() and (most := limit.read_text().strip()).isdigit():
        free = min(free, int(most) - _fields(cgroup / "memory.stat")["anon"])
    return max(0, free)


def room_for(needed: float, device: torch.device) -> int | None:
    """The free bytes; if `needed` are more, what this process has freed and still holds is returned first."""
    free = free_bytes(device)
    if free is None or free >= needed or device.type != "cpu":
        return free
    return_free_pages()
    return free_bytes(device)


def available_bytes(device: torch.device) -> int | None:
    """Bytes that this process could hold in all, what it holds already included; None if the system does not tell."""
    free = free_bytes(device)
    if free is None:
        return None
    if device.type == "cuda":
        return free + torch.cuda.memory_allocated(device)
    return free + _held_bytes()


def total_bytes(device: torch.device, *, meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Bytes that the device has, or that this process is limited to; None if the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if device.type != "cpu" or not meminfo.is_file():
        return None
    total = _fields(meminfo)["MemTotal:"] * 1024
    limit = cgroup / "memory.max"
    most = limit.read_text().strip() if limit.is_file() else "max"
    return min(total, int(most)) if most.isdigit() else total


def return_pages_if_short() -> None:
    """Return the pages of freed memory to the system if less is left there than this process holds.

    Else it keeps them: an update of 135 M weights takes a fifth longer in fresh pages.
    """
    free = free_bytes(_HOST)
    if free is None or free < _held_bytes():
        return_free_pages()


def _held_bytes() -> int:
    return _fields(_STATUS)["RssAnon:"] * 1024


def _fields(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(number) for name, number, *_ in (line for line in lines if len(line) > 1) if number.isdigit()}
