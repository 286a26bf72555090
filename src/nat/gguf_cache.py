"""GGUF files, as Ollama and LM Studio keep them: each is converted once, into a folder that the cache keeps.

The folder lies under the SHA-256 of the file: a renamed file is not converted again, a changed one is.
"""

import fcntl
import hashlib
import logging
import subprocess
import sys
from pathlib import Path

from nat.errors import ModelUnavailable
from nat.files import remove_unfinished, user_cache
from nat.wire.extras import install_hint, missing_packages
from nat.wire.model_folder import is_model

logger = logging.getLogger(__name__)


def converted(file: Path) -> Path:
    """The folder of safetensors with the model of a GGUF file; converted unless the cache has it.

    Raises:
        ModelUnavailable: a package is missing, or transformers cannot read the file.

    """
    if missing := missing_packages(["gguf", "torch", "transformers"]):
        problem = f"reading the file {file} needs packages that are not installed: {', '.join(missing)}"
        raise ModelUnavailable(problem, hint=install_hint("local"))
    with file.open("rb") as content:
        place = user_cache() / "gguf" / hashlib.file_digest(content, "sha256").hexdigest()
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:  # the child holds it, too: a killed parent leaves no second conversion
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := next(filter(is_model, place.glob("[!.]*")), None)) is None:
            remove_unfinished(place)
            found = place / file.stem
            _convert(file, found, lock.fileno())
    return found


def _convert(file: Path, folder: Path, lock: int) -> None:
    logger.info("converting %s (%.0f MiB) to safetensors, once", file, file.stat().st_size / 2**20)
    command = [sys.executable, "-P", "-m", "nat.backend.gguf_reading", str(file.resolve()), str(folder)]
    done = subprocess.run(command, capture_output=True, pass_fds=[lock], text=True, check=False)
    if done.returncode:
        _, refused, problem = f"\n{done.stderr.strip()}".rpartition("\nError: ")
        failed = f"the conversion of {file} ended with exit code {done.returncode}: {problem.splitlines()[-1]}"
        raise ModelUnavailable(problem if refused else failed)
    num_bytes = sum(path.stat().st_size for path in folder.iterdir())
    logger.info("%s: %s, %.0f MiB in %s", file.name, done.stdout, num_bytes / 2**20, folder)
