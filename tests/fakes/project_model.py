"""The tiny model of new projects, made once for all tests of this tree: it takes half a minute of a core."""

import hashlib
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from fakes.made_once import made_once

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".tmp" / "project_models"
MADE_FROM = ("src/nat/backend/calculator.py", "src/nat/backend/pretraining.py", "constraints.txt")


def project_model(tool: str = "add", answer_tool: str | None = None, *, ready: Path | None = None) -> Path:
    """The model that `nat init` makes for these tools: the kept one, or a copy of `ready`, or a new one."""
    arguments = ["--tool", tool, *([] if answer_tool is None else ["--answer_tool", answer_tool])]
    key = hashlib.sha256(b"\0".join([*((ROOT / name).read_bytes() for name in MADE_FROM), *map(str.encode, arguments)]))
    make = partial(_make, arguments) if ready is None else partial(shutil.copytree, ready, dirs_exist_ok=True)
    return made_once(KEPT / key.hexdigest(), make)


def _make(arguments: list[str], folder: Path) -> None:
    command = [sys.executable, "-m", "nat.backend.calculator", str(folder), *arguments]
    subprocess.run(command, check=True, timeout=900)
