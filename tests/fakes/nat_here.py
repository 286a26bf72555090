"""The `nat` command with its backends in the test's own process, for what does not depend on processes."""

from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from fakes.backend_here import backend_here
from nat.cli.main import exit_code
from nat.registry.catalog import pushed_catalog


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def nat_here(*arguments: str, folder: Path) -> Done:
    """Run `nat` in a folder."""
    written, said = StringIO(), StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        pushed_catalog(),
        redirect_stdout(written),
        redirect_stderr(said),
    ):
        patch.chdir(folder)
        patch.setattr("nat.plugins.local.llm.running_backend", backend_here)
        code = exit_code(list(arguments))
    return Done(code, written.getvalue(), said.getvalue())
