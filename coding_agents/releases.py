"""Install coding agents as a package registry has them, each release into a folder of its own.

Run this file to install them all: `python coding_agents/releases.py`.
"""

import fcntl
import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[1] / ".tmp" / "coding_agents"
INSTALL_DEADLINE_S = 600


@dataclass(frozen=True)
class Release:
    """One version of an npm package with a program in it."""

    package: str
    version: str
    program: str

    def installed(self) -> Path:
        """The program; the package is installed first where it is missing."""
        HOME.mkdir(parents=True, exist_ok=True)
        with (HOME / f"{self.program}.lock").open("w") as lock:
            # Whoever comes while it is installed waits for it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._install(HOME / f"{self.program}-{self.version}")

    def _install(self, folder: Path) -> Path:
        program, done = folder / "node_modules" / ".bin" / self.program, folder / "installed"
        if done.is_file():
            return program
        began = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        wanted = {"private": True, "dependencies": {self.package: self.version}}
        (folder / "package.json").write_text(json.dumps(wanted))
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError(f"npm is not on the PATH; {self.package} is installed with it")
        command = [npm, "install", "--silent", "--no-audit", "--no-fund"]
        subprocess.run(command, check=True, cwd=folder, timeout=INSTALL_DEADLINE_S)
        done.touch()
        print(f"installed {self.package} {self.version} in {time.monotonic() - began:.0f} s", flush=True)
        return program


CODEX = Release("@openai/codex", "0.169.0", "codex")
CLAUDE = Release("@anthropic-ai/claude-code", "2.1.197", "claude")
QWEN = Release("@qwen-code/qwen-code", "0.15.10", "qwen")

if __name__ == "__main__":
    for each in (CODEX, CLAUDE, QWEN):
        each.installed()
