"""The documentation as data: pages, their code blocks, links and anchors. Pure except for reading the files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PATTERNS = (
    "README.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "docs/**/*.md",
    "examples/*/README.md",
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: "Page"
    line: int
    language: str
    """The word after the fence; empty if there is none."""
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """The name in the block's first line, if that line is a comment with only a file name: `# agent.yml`."""
        first = self.text.partition("\n")[0]
        found = re.fullmatch(r"# ([\w./-]+\.(?:yml|yaml|py|toml))", first)
        return found[1] if found else None

    @property
    def is_module(self) -> bool:
        """Whether the block is a Python file that a configuration can import by its name."""
        return self.language == "python" and self.file_name is not None and "/" not in self.file_name


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def blocks(self) -> list[Block]:
        """Every code block, in order; an indented one counts as a block without a language."""
        return [
            Block(self, token.map[0] + 1, token.info.strip(), token.content)
            for token in _tokens(self.path)
            if token.type in ("fence", "code_block")
        ]

    @property
    def links(self) -> list[str]:
        """The targets of all links and images."""
        return [
            str(child.attrs["href" if child.type == "link_open" else "src"])
            for token in _tokens(self.path)
            for child in token.children or ()
            if child.type in ("link_open", "image")
        ]

    @property
    def anchors(self) -> set[str]:
        """The anchors that links to this page may use."""
        seen: dict[str, int] = {}
        return {_slug(text, seen) for _, text in _headings(self.path)}


def pages() -> list[Page]:
    """Every page of the documentation."""
    return [Page(path) for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]


def _tokens(path: Path):
    return MarkdownIt("commonmark").enable("table").parse(path.read_text("utf-8"))


def _headings(path: Path) -> Iterator[tuple[int, str]]:
    tokens = _tokens(path)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            yield int(opening.tag[1]), "".join(child.content for child in inline.children or ())


def _slug(text: str, seen: dict[str, int]) -> str:
    """The anchor that GitHub gives a heading; a second heading of the same name gets a number."""
    slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    count = seen[slug] = seen.get(slug, -1) + 1
    return f"{slug}-{count}" if count else slug
