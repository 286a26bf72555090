"""The commands of `docs/start/` run, in order and in an empty folder, on a tiny model."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.doc_commands import command_lines
from e2e.doc_pages import ROOT, Page
from fakes.processes import NAT
from fakes.project_model import project_model
from fakes.tiny_model import make_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]
ELSEWHERE = {"make", "source"}
"""Commands that install; `conformance/installs` runs those."""
INSTEAD = {
    "Qwen/Qwen2.5-0.5B-Instruct": "model",
    "max_tokens: 256": "max_tokens: 32",
    "# config.yml\n": "base: whole.yml\n",
}
"""A tiny model for the reader's, which has a context of 128 tokens; and a project around the block of `your_model`."""


@pytest.mark.parametrize("name", ["first_run", "your_agent", "your_model"])
def test_the_commands_of_a_page_run(name, tmp_path):
    """None fails, and no run that they start has failures."""
    page = Page(ROOT / "docs" / "start" / f"{name}.md")
    folder = prepared(name, tmp_path)
    text = "\n".join(parts(page))
    for theirs, ours in INSTEAD.items():
        text = text.replace(theirs, ours)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "MODEL": str(tmp_path / "student"), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = ["/bin/bash", "-euo", "pipefail", "-c", text]
    subprocess.run(command, cwd=folder, env=os.environ | own, check=True, timeout=900)
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("my_agent/.tmp/runs/2*/summary.json")]
    assert len(runs) == (2 if name == "first_run" else 0)
    assert all((run["failures"], run["broken_by"]) == ([], {}) for run in runs)


def parts(page: Page) -> Iterator[str]:
    """The page's blocks as a script: files are written, Python and commands run, with few epochs."""
    runs = 0
    for block in page.blocks:
        if block.language == "bash":
            for line in command_lines(block):
                if line.startswith("nat finetune") and "--dry_run" not in line:
                    runs += 1
                    yield f"{line.partition('  #')[0]} -o finetuning.num_epochs {5 if runs == 1 else 1}"
                elif line.split()[0] not in ELSEWHERE:
                    yield line
        elif block.file_name is not None:
            yield f"cat > {block.file_name} <<'END OF FILE'\n{block.text}END OF FILE"
        elif block.language == "python":
            yield f"python - <<'END OF FILE'\n{block.text}END OF FILE"


def prepared(name: str, folder: Path) -> Path:
    """The reader's folder, with the model or the project that the page takes for granted."""
    if name == "your_agent":
        make_tiny_model(folder / "student")
    if name != "your_model":
        return folder
    project = folder / "project"
    subprocess.run([sys.executable, "-c", NAT, "init", "project", "--no_model"], cwd=folder, check=True)
    shutil.copytree(project_model(), project / "model")
    (project / "config.yml").rename(project / "whole.yml")
    return project
