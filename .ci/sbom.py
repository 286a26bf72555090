"""Write what `pip install 'nat-finetuning-harness[local]'` brings with the pins of constraints.txt: a CycloneDX SBOM.

    .tmp/release/bin/python .ci/sbom.py WHEEL OUTPUT

Its versions and SHA-256 are those of this Python and machine. `make dist` runs it.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(wheel: str, output: str) -> None:
    """Ask pip which files it would install; nothing is installed."""
    asked = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", "--constraint"]
    chosen = run("pip", *asked, str(ROOT / "constraints.txt"), f"{wheel}[local]")
    lines = []
    for file in json.loads(chosen)["install"]:
        if not file["is_direct"]:
            name, version = file["metadata"]["name"], file["metadata"]["version"].partition("+")[0]
            digest = file["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={version} --hash=sha256:{digest}")
    listed = "\n".join(sorted(lines, key=str.casefold))
    described = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--output-file", output, "-"]
    run("cyclonedx_py", "requirements", *described, given=listed)


def run(module: str, *arguments: str, given: str = "") -> str:
    """Run a module of this environment."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
