"""What the machine is that a bench ran on, and how busy."""

import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

_FLAGS = {"avx512_bf16": "avx512_bf16", "amx_bf16": "AMX"}
"""Flags of /proc/cpuinfo that decide how fast bfloat16 is, and how people call them."""


def machine() -> str:
    """The processor and the versions."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    computes = [name for flag, name in _FLAGS.items() if flag in flags]
    lacks = [f"no {name}" for flag, name in _FLAGS.items() if flag not in flags]
    cores = f"{len(os.sched_getaffinity(0))} cores ({', '.join(computes + lacks)})"
    return ", ".join([cores, *(f"{name} {version(name)}" for name in ("torch", "transformers"))])


def now() -> str:
    """The time, and the load of the last minute, which says how quiet the machine was."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M}, load {os.getloadavg()[0]:.1f}"
