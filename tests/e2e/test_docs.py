"""The documentation is true: samples run, configurations load, commands exist, links lead somewhere."""

import ast
import asyncio
import importlib.util
import inspect
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from e2e.doc_commands import check_command, command_lines
from e2e.doc_configurations import check_configuration
from e2e.doc_pages import ROOT, Block, Page, pages
from e2e.doc_services import check_service
from fakes.runs_on_disk import make_run
from nat.registry.catalog import pushed_catalog
from nat.registry.imports import import_components

PAGES = pages()
by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture
def folder(tmp_path):
    """The reader's folder; modules in it are forgotten, because other pages have files of the same names."""
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", None)):
            del sys.modules[name]


@by_name
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
                if not check_service(block, folder):
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
        case "yaml":
            check_configuration(block)
        case "bash" | "console":
            for line in command_lines(block):
                check_command(line, folder)
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "text":
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


@cache
def reference_pages() -> Mapping[str, str]:
    script = ROOT / "docs" / "make_reference.py"
    spec = importlib.util.spec_from_file_location("make_reference", script)
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    return maker.pages()


def test_pages_that_messages_name_exist():
    """A message names a page by `docs_page`, which says where it is, and the page exists."""
    named = []
    for path in sorted((ROOT / "src" / "nat").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        strings = (
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        docstrings = {
            node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        if path.name != "errors.py":
            assert not [text for text in strings if "docs/" in text and text not in docstrings], path
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
        named += [ast.literal_eval(call.args[0]) for call in calls if call.func.id == "docs_page"]
    assert len(named) > 5
    assert not [name for name in named if not (ROOT / "docs" / name).is_file()]


@pytest.mark.parametrize(
    "name",
    [
        *(f"configuration/{path.name}" for path in sorted((ROOT / "docs/reference/configuration").glob("*.md"))),
        "cli.md",
        "python.md",
        "records.md",
        "metrics.md",
        "algorithms.md",
        "causes.md",
        "models_and_machines.md",
        "families.md",
        "templates.md",
        "server_metrics.md",
        "messages/index.md",
    ],
)
def test_the_reference_is_up_to_date(name):
    """The committed reference pages equal the output of `make docs`."""
    committed = (ROOT / "docs" / "reference" / name).read_text("utf-8")
    assert committed == reference_pages()[name], "run `make docs` and commit docs/reference"


def test_every_page_of_the_reference_is_made():
    """No page of the configuration is missing or left over."""
    made = {name for name in reference_pages() if name.startswith("configuration/")}
    assert made == {f"configuration/{path.name}" for path in (ROOT / "docs/reference/configuration").glob("*.md")}


MESSAGES = ROOT / "docs" / "reference" / "messages"
TROUBLESHOOTING = sorted(set(MESSAGES.glob("*.md")) - {MESSAGES / "index.md"})


GUIDES = [ROOT / "docs" / "from" / name for name in ("openpipe_art.md", "nemo_customizer.md")]
"""Guides with messages of their own."""


@pytest.mark.parametrize("path", [*TROUBLESHOOTING, *GUIDES], ids=lambda path: path.stem)
def test_troubleshooting_quotes_the_tool(path):
    """Every heading that quotes a message consists of words that the code prints."""
    messages = list(texts_of_the_code())
    pieces = [piece.strip() for heading in Page(path).headings(level=3) for piece in heading.split("…")]
    assert len(pieces) > 8
    assert [piece for piece in pieces if not any(piece in message for message in messages)] == []


def texts_of_the_code() -> Iterator[str]:
    """Every string of the source, with `…` where an f-string has a value."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
