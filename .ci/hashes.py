"""Write `.ci/hashes.txt`: the pins of `constraints.txt`, each with the SHA-256 of the file that pip takes for it here.

    python3.11 -m venv .tmp/hashes && .tmp/hashes/bin/python .ci/hashes.py

`.ci/run` installs from it with `--require-hashes`. The files are those of this Python and machine (CI's: CPython
3.11 on x86-64 Linux), and torch is the CPU build; on another machine `make install` takes the pins alone.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "# Written by .ci/hashes.py from constraints.txt: CPython 3.11, x86-64 Linux, torch for the CPU.\n"


def main() -> None:
    """Ask pip which files it would install; nothing is installed."""
    asked = ["install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-", "--requirement"]
    pins = ROOT / "constraints.txt"
    run = subprocess.run([sys.executable, "-m", "pip", *asked, pins], check=True, stdout=subprocess.PIPE)
    lines = []
    for file in json.loads(run.stdout)["install"]:
        name, version = file["metadata"]["name"], file["metadata"]["version"].partition("+")[0]
        digest = file["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    (ROOT / ".ci" / "hashes.txt").write_text(HEAD + "".join(sorted(lines, key=str.casefold)), encoding="utf-8")


if __name__ == "__main__":
    main()
