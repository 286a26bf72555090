"""The environments of other people's packages, made where they are missing."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def interpreter(folder: str, expression: str) -> Path:
    """The interpreter that an expression over `environments` gives, the module of that name in the folder."""
    code = f"import environments; print({expression})"
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=REPOSITORY / folder, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    return Path(told.stdout.splitlines()[-1])
