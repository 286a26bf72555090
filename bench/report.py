"""Keep the tables that a bench prints, as the figures of its pages; what the machine was, and how busy."""

import io
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench import figures

_FLAGS = {"avx512_bf16": "avx512_bf16", "amx_bf16": "AMX"}
"""Flags of /proc/cpuinfo that decide how fast bfloat16 is, and how people call them."""
_TABLE = re.compile(r"^\| (.+) \|\n\|((?::?-+:?\|)+)\n((?:\|.*\|\n)+)", re.MULTILINE)


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


class Printed(io.StringIO):
    """Prints what is written into it, and keeps it."""

    def write(self, text: str) -> int:
        """Print the text, too."""
        print(text, end="", file=sys.__stdout__, flush=True)
        return super().write(text)


def tables(printed: str) -> Iterator[tuple[list[str], figures.Rows]]:
    """The tables of a text: which columns name a row, those before the first that is aligned to the right, and rows."""
    for head, sides, body in _TABLE.findall(printed):
        titles, rows = head.split(" | "), []
        for line in body.splitlines():
            cells = [figures.stored(cell.strip()) for cell in line[1:-1].split("|")]
            row = dict(zip(titles, cells, strict=True))
            when, _, load = row.pop("measured", now()).partition(", load ")
            rows.append(row | {"measured": when, "load": row.pop("load", load), "machine": machine()})
        yield titles[: f"{sides}---:".split("|").index("---:")], rows


def keep(bench: str, printed: str) -> None:
    """Put printed tables into the file of the bench that has their columns, and the figures into the pages.

    Rows of the same names are replaced; those that were not measured again stay, each with its own time.
    """
    files = {path.stem: figures.read(path.stem) for path in sorted(figures.FIGURES.glob(f"{bench}*.csv"))}
    for names, rows in tables(printed):
        file = next((file for file, old in files.items() if rows[0].keys() <= old[0].keys()), bench)
        old = files.get(file, [])
        if old and not rows[0].keys() <= old[0].keys():
            raise SystemExit(f"no file {figures.FIGURES}/{bench}*.csv has the columns {', '.join(rows[0])}")
        empty = dict.fromkeys(old[0], "") if old else {}
        new = {tuple(row[name] for name in names): empty | row for row in rows}
        merged = [new.pop(tuple(row[name] for name in names), row) for row in old]
        figures.write(file, [*merged, *new.values()])
    figures.main()
