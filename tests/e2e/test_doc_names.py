"""Names in the prose of the documentation are names of the code: commands, options, keys, metrics, files, functions.

They stand in inline code. What belongs to other tools is listed in `names_of_others.toml`, by tool.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

import click
import pytest

from e2e.doc_pages import ROOT, pages
from nat.cli.main import cli
from nat.data_models.config import Config

PAGES = [page for page in pages() if page.name != "CHANGELOG.md" and "/decisions/" not in page.name]
LIST = ROOT / "tests" / "e2e" / "names_of_others.toml"
OTHERS = tomllib.loads(LIST.read_text("utf-8"))

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
KEY = re.compile(r"([a-z_]+)(?:\.[a-z_0-9]+)+")
METRIC = re.compile(r"([a-z]+)/[a-z_]+")
SOURCES = ("src", "examples", "bench", "conformance", "tests", "mutants", "Makefile", "pyproject.toml")
WRITTEN = {".py", ".yml", ".toml", ".js", ".mjs", ".html", ".ipynb", ".ebnf", ""}
OF_MODELS = {"templates", "families"}
"""Generated pages, whose words are names of models."""
SECTIONS = {*Config.model_fields, "training", "guards", "lora", "budget", "curriculum_learning", "reward_function"}


def refuse(found: set[tuple[str, str]]) -> None:
    """Fail with the place of each name that is none of another tool."""
    others = {name for names in OTHERS.values() for name in names}
    if wrong := sorted(f"{page}: {name}" for page, name in found if name not in others):
        pytest.fail("neither of the code nor in names_of_others.toml:\n" + "\n".join(wrong))


@cache
def spans() -> frozenset[tuple[str, str]]:
    """Every page's name with every text in inline code on it."""
    return frozenset((page.name, text) for page in PAGES for text in page.inline_code)


@cache
def sources() -> dict[str, str]:
    """The texts of the sources, by the names of their files."""
    places = (path for place in SOURCES for path in [ROOT / place, *(ROOT / place).rglob("*")])
    files = (path for path in places if path != LIST and path.is_file() and path.suffix in WRITTEN)
    ours = (path for path in files if not {".tmp", "__pycache__"}.intersection(path.parts))
    return {str(path): path.read_text("utf-8") for path in ours}


@cache
def identifiers() -> frozenset[str]:
    """All words of the sources, and of the names of their files."""
    found = {word for name, text in sources().items() for word in IDENTIFIER.findall(f"{Path(name).name} {text}")}
    return frozenset(found)


def of_the_reference(name: str) -> set[str]:
    """What generated pages show as code; another test keeps these pages equal to the code."""
    return {text for page, text in spans() if page.startswith(f"docs/reference/{name}")}


def commands(command: click.Command, words: str = "") -> dict[str, click.Command]:
    """A command and all below it, by their words."""
    found, context = {words: command}, click.Context(command)
    for word in command.list_commands(context) if isinstance(command, click.Group) else ():
        found |= commands(command.get_command(context, word), f"{words} {word}".strip())
    return found


def test_commands_exist():
    """After `nat` and `make` stand a command of ours and options of that command."""
    known = commands(cli)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    wrong = set()
    for page, text in spans():
        program, _, rest = text.partition(" ")
        if program == "make" and not set(rest.split()) <= targets:
            wrong.add((page, text))
        elif program == "nat" and rest[:1].islower():
            words = re.sub(r"--log-level \w+ ", "", rest).split()
            name = next((" ".join(words[:size]) for size in (2, 1) if " ".join(words[:size]) in known), None)
            own = {word for each in known[name].params for word in (*each.opts, "--help")} if name else set()
            if name is None or not set(OPTION.findall(rest)) <= own | {"--log-level"}:
                wrong.add((page, text))
    refuse(wrong)


def test_options_exist():
    """An option in a sentence is one of some command or script of ours."""
    known = {word for command in commands(cli).values() for each in command.params for word in each.opts}
    known |= {option for text in sources().values() for option in re.findall(r"[\"'](--[a-z][\w-]*)[\"']", text)}
    named = {(page, option) for page, text in spans() for option in OPTION.findall(text)}
    refuse({(page, option) for page, option in named if option not in known | {"--help"}})


def test_keys_exist():
    """A dotted path that begins with a section of the YAML ends with a key of it."""
    texts = of_the_reference("configuration")
    texts |= {text for page in PAGES if "/configuration/" in page.name for text in page.headings(2) + page.headings(3)}
    known = {word for text in texts for word in text.split(".")}
    named = {(page, path[0]) for page, text in spans() if (path := KEY.match(text)) and path[1] in SECTIONS}
    assert len(named) > 50
    refuse({(page, path) for page, path in named if path.rpartition(".")[2] not in known})


def test_metrics_exist():
    """A path whose first word is a prefix of metrics is a metric."""
    known = of_the_reference("metrics")
    prefixes = {path[1] for text in known if (path := METRIC.fullmatch(text))}
    named = {(page, text) for page, text in spans() if (path := METRIC.fullmatch(text)) and path[1] in prefixes}
    assert len(named) > 50
    refuse(named - {(page, text) for page, text in named if text in known})


def test_words_exist():
    """Every word in inline code occurs in the sources, or in a code block of its page."""
    wrong = set()
    for page in [page for page in PAGES if page.path.stem not in OF_MODELS]:
        own = {word for block in page.blocks for word in IDENTIFIER.findall(block.text)}
        words = {word for text in page.inline_code for word in IDENTIFIER.findall(text)}
        wrong |= {(page.name, word) for word in words - own - identifiers()}
    refuse(wrong)


def test_names_of_others_are_used():
    """The list of exceptions has no name that no page has, and none of ours."""
    text = " ".join(text for _, text in spans())
    names = [name for names in OTHERS.values() for name in names]
    assert [name for name in names if name not in text or name in identifiers()] == []
    assert len(names) == len(set(names))
