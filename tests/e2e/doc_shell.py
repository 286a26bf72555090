"""The pages of `docs/start/` as shell scripts, and what their commands print beside what the pages show.

`python -m e2e.doc_shell`, in `tests/`, runs the pages whole and writes what was printed into them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from e2e.doc_commands import command_lines
from e2e.doc_pages import ROOT, Block, Page
from fakes.processes import NAT
from fakes.project_model import project_model
from fakes.tiny_model import make_tiny_model

START = ROOT / "docs" / "start"
END = "--- end of a block"
ELSEWHERE = {"make", "source"}
"""Commands that install. `conformance/installs` does, and what install.md says besides."""
_INSTEAD = {
    "Qwen/Qwen2.5-0.5B-Instruct": "model",
    "max_tokens: 256": "max_tokens: 32",
    "# config.yml\n": "base: whole.yml\n",
}
"""A tiny model for the reader's, which has a context of 128 tokens; and a project around the block of `your_model`."""
_MASKS = (
    (r"\d{8}-\d{6}-[0-9a-f]{4}", "RUN"),
    (r"[+-]?\d[\d,.]*\u00d7?%?(?: ?(?:ms|s|min|MB|GB)\b)?", "N"),
    (r"N(?: N)+", "N"),
    (r"\s+", " "),
)


def walked() -> list[Page]:
    """The pages whose commands are run."""
    pages = [Page(path) for path in sorted(START.glob("*.md")) if path.stem != "install"]
    return [page for page in pages if any(block.language == "bash" for block in page.blocks)]


def masked(line: str) -> str:
    """A line without its numbers, and with one space for each gap."""
    for pattern, instead in _MASKS:
        line = re.sub(pattern, instead, line)
    return line.strip()


def shown(page: Page) -> dict[int, Block]:
    """The blocks of text that directly follow commands, by the commands' place among the page's blocks."""
    found = {}
    for index, (commands, output) in enumerate(pairwise(page.blocks)):
        after = commands.line + commands.text.count("\n") + 3
        if commands.language == "bash" and output.language == "text" and output.line <= after:
            found[index] = output
    return found


def missing(block: Block, printed: str) -> list[str]:
    """The block's lines that were not printed, whatever their numbers."""
    lines = {masked(line) for line in printed.splitlines()}
    return [line for line in block.text.splitlines() if line.strip() != "…" and masked(line) not in lines]


def recorded(block: Block, printed: str) -> str:
    """The block with the numbers of what was printed; each printed line is used once.

    What stands after the last gap is looked for from the end.
    """
    lines, text = printed.splitlines(), block.text.splitlines()
    gap = max((at for at, line in enumerate(text) if line.strip() == "…"), default=len(text))
    head = [_recorded(line, lines) for line in text[:gap]]
    lines.reverse()
    tail = [_recorded(line, lines) for line in reversed(text[gap:])]
    return "\n".join([*head, *reversed(tail)]) + "\n"


def _recorded(line: str, lines: list[str]) -> str:
    same = next((each for each in lines if masked(each) == masked(line)), None)
    if same is None:
        return line
    lines.remove(same)
    return same.rstrip()


def script(page: Page, *, short: bool) -> str:
    """The page's blocks in order: files are written, Python and commands run."""
    return "\n".join(f"{part}\necho '{END}'" for part in _parts(page, short=short))


def _parts(page: Page, *, short: bool) -> Iterator[str]:
    runs = 0
    for block in page.blocks:
        match block.language:
            case "bash":
                lines = [line for line in command_lines(block) if line.split()[0] not in ELSEWHERE]
                for at, line in enumerate(lines):
                    if short and line.startswith("nat finetune") and "--dry_run" not in line:
                        runs += 1
                        lines[at] = f"{line.partition('  #')[0]} -o finetuning.num_epochs {5 if runs == 1 else 1}"
                yield "\n".join(lines) or ":"
            case _ if block.file_name is not None:
                yield f"cat > {block.file_name} <<'END OF FILE'\n{block.text}END OF FILE"
            case "python":
                yield f"python - <<'END OF FILE'\n{block.text}END OF FILE"
            case _:
                yield ":"


def printed(page: Page, folder: Path, *, short: bool) -> list[str]:
    """What each block prints in a new folder; AssertionError if a command fails."""
    prepare(page, folder)
    text = script(page, short=short)
    for theirs, ours in _INSTEAD.items():
        text = text.replace(theirs, ours)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "MODEL": str(folder / "student"), "COLUMNS": "400", "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(  # noqa: S603 - the project's own documentation
        ["/bin/bash", "-euo", "pipefail", "-c", text],
        cwd=folder / "project" if page.path.stem == "your_model" else folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, f"{page.name}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.split(f"{END}\n")


def nat(folder: Path, *arguments: str) -> str:
    """Run `nat ARGUMENTS`; gives its output."""
    command = [sys.executable, "-c", NAT, *arguments]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout  # noqa: S603 - our own command


def prepare(page: Page, folder: Path) -> None:
    """Make what the reader of the page has: a model, or a project, to whose YAML the page's block is added."""
    if page.path.stem == "your_agent":
        make_tiny_model(folder / "student")
    if page.path.stem == "your_model":
        nat(folder, "init", "project", "--no_model")
        shutil.copytree(project_model(), folder / "project" / "model")
        (folder / "project" / "config.yml").rename(folder / "project" / "whole.yml")


def main() -> None:
    """Write what the commands of each page print into the page."""
    for page in walked():
        if blocks := shown(page):
            with tempfile.TemporaryDirectory() as folder:
                outputs = printed(page, Path(folder), short=False)
            text = page.path.read_text("utf-8")
            for index, block in blocks.items():
                text = text.replace(block.text, recorded(block, outputs[index]))
            page.path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
