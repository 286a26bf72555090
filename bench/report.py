"""Write measured tables into docs/performance.md, with the machine, its load and the date beside them."""

import os
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
_FLAGS = {"avx512_bf16": "avx512_bf16", "amx_bf16": "AMX"}
"""Flags of /proc/cpuinfo that decide how fast bfloat16 is, and how people call them."""


def machine() -> str:
    """The processor, the load of the last minute before the run, the versions and the date."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    computes = [name for flag, name in _FLAGS.items() if flag in flags]
    lacks = [f"no {name}" for flag, name in _FLAGS.items() if flag not in flags]
    cores = f"{len(os.sched_getaffinity(0))} cores ({', '.join(computes + lacks)})"
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return f"{datetime.now(UTC):%Y-%m-%d}, {cores}, load before the run {os.getloadavg()[0]:.1f}, {versions}"


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace what stands between the page's marks `<!-- bench NAME -->` and `<!-- end of bench NAME -->`."""
    start, end = f"<!-- bench {name} -->\n", f"<!-- end of bench {name} -->"
    old = page.read_text()
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{start}{text}\n{end}", old)
    if count != 1:
        raise SystemExit(f"{page} has {count} places for the table: it needs one {start.strip()} and {end}")
    page.write_text(new)
