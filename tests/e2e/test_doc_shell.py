"""The commands of `docs/start/` do what the pages say, on a tiny model."""

import json
import re

import pytest

from e2e.doc_pages import ROOT, Page
from e2e.doc_shell import START, masked, missing, nat, printed, recorded, shown, walked

pytestmark = pytest.mark.usefixtures("forked_processes")


@pytest.mark.parametrize("page", walked(), ids=lambda page: page.path.stem)
def test_the_commands_of_a_page_run(page, tmp_path):
    """In an empty folder, in order, none fails; what they print is what the page shows, but for the numbers."""
    outputs = printed(page, tmp_path, short=True)
    assert [line for index, block in shown(page).items() for line in missing(block, outputs[index])] == []
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("my_agent/.tmp/runs/2*/summary.json")]
    assert len(runs) == (2 if page.path.stem == "first_run" else 0)
    assert all((run["failures"], run["broken_by"]) == ([], {}) for run in runs)


def test_the_readme_shows_what_a_run_prints(tmp_path):
    """The lines of `make demo` and `make real`; the demo is shortened, so the verdict may differ."""
    demo = "examples/tic_tac_toe/configs/finetune.yml"
    short = ("-o", "finetuning.num_epochs", "2", "-o", "finetuning.output_dir", str(tmp_path))
    said = nat(ROOT, "--log-level", "warning", "finetune", f"--config_file={demo}", *short)
    blocks = [block for block in Page(ROOT / "README.md").blocks if block.language == "text"]
    assert len(blocks) == 2
    said = re.sub(r"^(Not shown|Worse):", "Improved:", said, flags=re.MULTILINE)
    assert [line for block in blocks for line in missing(block, said)] == []


def test_outputs_are_shown():
    """The first run shows what probe, plan and training print."""
    assert len(shown(Page(START / "first_run.md"))) >= 3


def test_numbers_are_masked():
    """Durations, sizes, signs and names of runs differ from run to run; words do not."""
    line = "Improved: 0.292 → 0.771 in 2 min 5.1 s, 457 MB; +0.479 (10%), .tmp/20261123-145748-d9b7"
    assert masked(line) == "Improved: N → N in N, N; N (N), .tmp/RUN"


def test_a_block_is_recorded():
    """Each line takes the numbers of the line that was printed like it; what was not printed stays, and is found."""
    page = Page(START / "first_run.md")
    block = next(iter(shown(page).values()))
    block = type(block)(page, 0, "text", "epoch 1/15  reward 0.3\n…\nepoch 2/15  reward 0.4\ngone 1\n")
    output = "loading\nepoch 1/5  reward 0.5\nepoch 2/5  reward 0.6\nepoch 3/5  reward 0.7\n"
    assert recorded(block, output) == "epoch 1/5  reward 0.5\n…\nepoch 3/5  reward 0.7\ngone 1\n"
    assert missing(block, output) == ["gone 1"]
