"""The documentation is true: samples run, configurations load, commands exist, links lead somewhere."""

import ast
import asyncio
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from e2e.doc_commands import check_command, command_lines
from e2e.doc_configurations import check_configuration
from e2e.doc_pages import ROOT, Block, Page, pages
from fakes.runs_on_disk import make_run
from nat.registry.catalog import pushed_catalog
from nat.registry.imports import import_components

PAGES = pages()
TRAINING = {"docs/extend/components.md", "docs/recipes/tiny_model.md"}
"""Pages whose blocks train."""
by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture
def folder(tmp_path):
    """The reader's folder; modules in it are forgotten, because other pages have files of the same names."""
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", None)):
            del sys.modules[name]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in TRAINING else ()) for page in PAGES],
)
def test_blocks(page, folder, monkeypatch):
    """All blocks of a page work in order, in an empty folder, or beside the run that they read; none is skipped.

    Python blocks run and share their names; YAML loads with the types that earlier blocks registered;
    a block whose first line is a file name becomes that file for later blocks, Python imports it; commands are parsed.
    """
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    if page.name == "docs/recipes/notebook.md":
        make_run(folder / ".tmp" / "nat" / "finetuning", "20260314-120000-aaaa")
    module = ModuleType(f"page_{abs(hash(page.name))}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pushed_catalog(), asyncio.Runner() as runner:
        for block in page.blocks:
            try:
                check(block, module, runner, folder)
            except Exception as error:
                error.add_note(f"in the {block.language or 'unmarked'} block at {block.place}")
                raise


def check(block: Block, module: ModuleType, runner: asyncio.Runner, folder: Path) -> None:
    if block.file_name is not None:
        file = Path.cwd() / block.file_name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    match block.language:
        case "python" if block.is_module:
            import_components(str(Path.cwd() / block.file_name))
            vars(module).update(vars(sys.modules[Path(block.file_name).stem]))
        case "python":
            run_python(block, module, runner)
        case "yaml" if "apiVersion:" in block.text:  # of Kubernetes
            assert all(yaml.safe_load_all(block.text))
        case "yaml":
            check_configuration(block)
        case "bash" if block.text.startswith("#!"):  # of SLURM
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
        case "bash" | "console":
            for line in command_lines(block):
                check_command(line, folder)
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "text" | "ini":
            pass
        case other:
            pytest.fail(f"{block.place}: a block must say what it is (python, yaml, bash …, or text), not {other!r}")


def run_python(block: Block, module: ModuleType, runner: asyncio.Runner) -> None:
    """Run the block; it may use `await` at its top level."""
    source = "\n" * block.line + block.text
    code = compile(source, block.page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    running = eval(code, vars(module))  # noqa: S307 - the project's own documentation
    if inspect.iscoroutine(running):
        runner.run(running)


@by_name
def test_links(page):
    """A relative link leads to a file of the repository and, after `#`, to one of its headings."""
    dead = [
        link for link in page.links if "://" not in link and not link.startswith("mailto:") and not alive(page, link)
    ]
    assert dead == []


def alive(page: Page, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.path.parent / file).resolve() if file else page.path
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or anchor in Page(target).anchors


def test_every_page_is_found_from_the_index():
    """Every page under docs/ can be reached by links from the index."""
    docs = ROOT / "docs"
    reached = {docs / "index.md"}
    waiting = list(reached)
    while waiting:
        page = Page(waiting.pop())
        linked = {(page.path.parent / link.partition("#")[0]).resolve() for link in page.links if "://" not in link}
        new = {path for path in linked - reached if path.suffix == ".md" and path.is_relative_to(docs)}
        reached |= new
        waiting += new
    assert sorted(path.name for path in set(docs.rglob("*.md")) - reached) == []


def reference_pages() -> Mapping[str, str]:
    script = ROOT / "docs" / "make_reference.py"
    spec = importlib.util.spec_from_file_location("make_reference", script)
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    return maker.pages()


def test_pages_that_messages_name_exist():
    """A message names a page by its path from the repository's root."""
    named = {
        name
        for path in sorted((ROOT / "src" / "nat").rglob("*.py"))
        for name in re.findall(r"docs/[a-z_/]+\.md", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 5
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_the_reference_is_up_to_date():
    """The committed reference pages equal the output of `make docs`."""
    folder = ROOT / "docs" / "reference"
    made = reference_pages()
    old = [name for name, text in made.items() if (folder / name).read_text("utf-8") != text]
    assert old == [], "run `make docs` and commit docs/reference"
    kept = {f"configuration/{path.name}" for path in (folder / "configuration").glob("*.md")}
    assert kept == {name for name in made if name.startswith("configuration/")}
