"""Make the site from the pages of `docs/`, which stay plain Markdown: `make site`.

Sphinx reads a copy of the pages, to which this file adds what GitHub does not need: a navigation that follows from the
folders, and an index for folders without one.
"""

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from shutil import copy2

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = f"{url}/blob/main" if (url := os.environ.get("REPOSITORY_URL")) else ROOT.as_uri()
"""Where links lead that leave `docs/`; without a public address, to this checkout."""

SECTIONS = {
    "start": "Start",
    "recipes": "Recipes",
    "agents": "Agents",
    "scale": "Scale",
    "from": "Coming from",
    "understand": "Understand",
    "extend": "Extend",
    "reference": "Reference",
    "evidence": "Evidence",
    "contribute": "Contribute",
}
"""The folders in the order of the navigation."""
FIRST = ["install", "first_run", "your_agent", "your_model", "real_model", "loop", "configuration/index", "cli"]
"""Pages that come before their neighbours, which follow by name."""


project = PROJECT["name"]
release = PROJECT["version"]
html_title = "nat finetune"
extensions = ["myst_parser", "sphinx.ext.githubpages"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": ""})]
html_use_index = html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False

linkcheck_anchors = False  # GitHub's pages make theirs with scripts

myst_heading_anchors = 6
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target", "myst_role"]  # text for GitHub

smartquotes = False  # messages are found as they are printed


def write_pages(app: Sphinx) -> None:
    """Copy the pages and pictures into Sphinx' source folder, and add the others."""
    pages = Path(app.srcdir)
    for path in (path for path in DOCS.rglob("*.*") if path.suffix in (".md", ".png", ".svg")):
        copy = pages / path.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy2(path, copy)
    for folder in sorted({path.parent for path in pages.rglob("*.md")} - {pages}, reverse=True):
        write_index(folder)
    with (pages / "index.md").open("a", encoding="utf-8") as index:
        index.write(toctree([f"{title} <{folder}/index>" for folder, title in SECTIONS.items()], ":hidden:"))


def write_index(folder: Path) -> None:
    """Add the list of a folder's pages to its index, unseen, or show it in a new one."""
    index = folder / "index.md"
    there = index.exists()
    pages = [path.stem for path in folder.glob("*.md") if path != index]
    pages += [f"{path.parent.name}/index" for path in folder.glob("*/index.md")]
    pages.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    title = SECTIONS.get(folder.name, folder.name.replace("_", " ").capitalize())
    text = index.read_text("utf-8") if there else f"# {title}\n"
    index.write_text(text + toctree(pages, ":hidden:" if there else ":maxdepth: 1"), encoding="utf-8")


def toctree(pages: Iterable[str], option: str) -> str:
    """A list of pages, as MyST writes it."""
    return "\n```{toctree}\n" + "\n".join([option, "", *pages]) + "\n```\n"


class LinksOut(SphinxPostTransform):
    """Lead a link that leaves `docs/` to the repository."""

    default_priority = 8  # before MyST looks for the target among the pages

    def run(self) -> None:
        """A target that does not exist is left to MyST, which warns."""
        for node in list(self.document.findall(pending_xref)):
            path, _, anchor = node["reftarget"].partition("#")
            target = (DOCS / self.env.docname).parent / path
            if node["reftype"] == "myst" and node["refdomain"] is None and path and target.exists():
                address = f"{REPOSITORY}/{target.resolve().relative_to(ROOT)}" + (f"#{anchor}" if anchor else "")
                node.replace_self(nodes.reference("", "", *node.children, refuri=address))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_post_transform(LinksOut)
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
