"""Write measured rows into the tables of docs/evidence/speed.md; what the machine was, and how busy."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "speed.md"
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


def write_rows(name: str, head: Sequence[str], rows: Sequence[str], page: Path = PAGE) -> None:
    """Put rows into the page's table between `<!-- bench NAME -->` and `<!-- end of bench NAME -->`.

    Rows are known by their first cell: those of the same case are replaced, and those of cases that were not measured
    again stay, each with its own time. A table with another head is replaced whole.
    """
    start, end = f"<!-- bench {name} -->\n", f"<!-- end of bench {name} -->"
    text = page.read_text()
    if text.count(start) != 1 or text.count(end) != 1:
        raise SystemExit(f"{page} has no place for the table: it needs one {start.strip()} and one {end}")
    before, _, rest = text.partition(start)
    table, _, after = rest.partition(end)
    old = table.splitlines()
    kept = {line.split(" | ")[0]: line for line in old[len(head) :]} if old[: len(head)] == list(head) else {}
    merged = kept | {line.split(" | ")[0]: line for line in rows}
    page.write_text(f"{before}{start}" + "\n".join([*head, *merged.values()]) + f"\n{end}{after}")
