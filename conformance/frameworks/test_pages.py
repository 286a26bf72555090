"""The code and the YAML on each framework's page of the docs work, in that framework's own environment."""

import json
import subprocess
from pathlib import Path

import pytest
from conformance.environments import outside, python_of
from conformance.frameworks.driver import OFFLINE
from conformance.frameworks.server import Script, serving

from e2e.doc_pages import ROOT, Block, Page
from nat.wire.openai_api import ChatCompletionRequest

FOLDER = ROOT / "docs" / "agents" / "frameworks"
PAGES = {path.stem: Page(path) for path in sorted(FOLDER.glob("*.md"))}
COMMON = Page(FOLDER.parent / "index.md")
"""Has the tool and the YAML that all pages share."""
DEADLINE_S = 300


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test every page, or those of the selected frameworks."""
    if "page" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--framework") or PAGES
        metafunc.parametrize("page", [name for name in PAGES if name in wanted])


def test_the_page_works(page: str, tmp_path: Path) -> None:
    """Each agent answers after its tool has run; every call is captured, and a `local` LLM accepts it."""
    write([*COMMON.blocks, *PAGES[page].blocks], tmp_path)
    with serving() as script:
        results = play(page, tmp_path, script)
    assert results, "the page registers no workflow"
    assert script.unknown == []
    for name, result in results.items():
        served = [call for call in script.log if call.rollout == name]
        assert result["error"] is None
        assert result["answer"] == "The sum is 5."
        assert result["captured"] == len(served) > 1
        first, last = (call.chat["messages"] for call in (served[0], served[-1]))
        assert any("5" in str(message.get("content")) for message in last if message not in first)
        for call in served:
            ChatCompletionRequest.model_validate(call.chat)


def write(blocks: list[Block], folder: Path) -> None:
    """Write the Python files; the YAML of the page is appended to that of all pages."""
    for block in blocks:
        if block.language == "python":
            (folder / str(block.file_name)).write_text(block.text)
    yaml = [block.text for block in blocks if block.language == "yaml"]
    (folder / "config.yml").write_text("".join(yaml))


def play(page: str, folder: Path, script: Script) -> dict[str, dict[str, object]]:
    """Run the page's agents; gives the calls by rollout."""
    ended = subprocess.run(
        [python_of(page), "-m", "conformance.frameworks.play_page", folder, script.base_url, folder / "result.json"],
        cwd=folder,
        env=outside() | OFFLINE,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
    results: dict[str, dict[str, object]] = json.loads((folder / "result.json").read_text())
    return results
