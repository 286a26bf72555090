"""The files of `make site`: every link, and in Chromium axe, both colour schemes, a narrow window and the search."""

import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conformance.dashboard.visits import Visits, chromium
from conformance.environments import REPOSITORY

from e2e.doc_pages import Page

DOCS = REPOSITORY / "docs"
HTML = REPOSITORY / ".tmp" / "site" / "html"
MOVED = tomllib.loads((DOCS / "moved.toml").read_text())["pages"]
AT_ONCE = 8
"""Pages that one browser visits within its deadline."""

visits = Visits(f"{HTML.as_uri()}/?")
in_chromium = pytest.mark.skipif(chromium() is None, reason="no chromium on PATH; Debian's package is `chromium`")


class Parsed(HTMLParser):
    """What a page can be reached by, what it leads to and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.ids, self.links, self.loaded = path, {""}, [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id", ""))
        target = given.get("src") if tag in ("script", "img") else given.get("href")
        if target is not None:
            (self.links if tag == "a" else self.loaded).append(target)


@pytest.fixture(scope="module")
def pages() -> dict[Path, Parsed]:
    found = {path: Parsed(path) for path in sorted(HTML.rglob("*.html"))}
    assert len(found) > 100, "there is no site; `make site` builds it"
    return found


def sample() -> list[str]:
    """The index of each folder, the longest tables, the most code, the longest of the Python reference, and search."""
    every = {
        path: path.read_text("utf-8") for path in HTML.rglob("*.html") if f"{path.relative_to(HTML)}"[:-5] not in MOVED
    }
    chosen = {path for path in every if path.name == "index.html"}
    for sign in ("<tr", "<pre", 'class="sig '):
        chosen |= set(sorted(every, key=lambda path: every[path].count(sign))[-6:])
    return ["/search.html?q=curriculum", *(f"/{path.relative_to(HTML)}" for path in sorted(chosen))]


def internal(page: Parsed, link: str) -> tuple[Path, str]:
    """The file and the anchor that a link leads to."""
    url = urlsplit(link)
    path = Path(unquote(url.path))
    return ((page.path.parent / path).resolve() if url.path else page.path), unquote(url.fragment)


@in_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
async def test_pages_are_accessible_and_fit(width, scheme):
    """Axe has no complaint, no page is wider than the window, and nothing is loaded from elsewhere."""
    paths = sample()
    assert len(paths) >= 25
    faults = {}
    for some in (paths[start : start + AT_ONCE] for start in range(0, len(paths), AT_ONCE)):
        found = await visits(*({"path": path, "width": width, "scheme": scheme} for path in some))
        for path, page in zip(some, found, strict=True):
            fault = (page["violations"], page["overflow"], page["outside"])
            if fault != ([], 0, []):
                faults[path] = fault
    assert faults == {}


@in_chromium
async def test_search_works_from_the_disk():
    """A word of a page finds it, and a name of Python its class."""
    word, name = await visits(
        {"path": "/search.html?q=curriculum", "acts": [["wait", "#search-results li"]]},
        {"path": "/search.html?q=TrainerAdapter", "acts": [["wait", "#search-results li"]]},
    )
    assert "Curriculum" in word["text"]
    assert "nat.finetuning.interfaces.trainer_adapter" in name["text"]
    assert word["outside"] == name["outside"] == []


@in_chromium
async def test_an_old_path_leads_on():
    """The browser is on the new page at once."""
    (page,) = await visits({"path": "/guides/probe.html", "acts": [["wait", "article h1"]]})
    assert page["path"] == f"/{MOVED['guides/probe']}.html"


def test_every_link_leads_somewhere(pages):
    """The file exists, and the anchor in it; links that leave the site lead into this checkout, or to the web."""
    dead = []
    for page in pages.values():
        for link in {*page.links, *page.loaded}:
            if urlsplit(link).scheme == "file":
                assert Path(unquote(urlsplit(link).path)).exists(), (page.path, link)
            elif not urlsplit(link).scheme:
                path, anchor = internal(page, link)
                if not path.exists() or (path in pages and anchor not in pages[path].ids):
                    dead.append((str(page.path.relative_to(HTML)), link))
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(pages):
    """No font, style, script or picture comes from another place than the site's own files."""
    assert [link for page in pages.values() for link in page.loaded if urlsplit(link).netloc] == []


def test_anchors_are_those_of_github(pages):
    """A link to a heading works on GitHub and here."""
    missing = {}
    for path in sorted(DOCS.rglob("*.md")):
        html = pages[HTML / path.relative_to(DOCS).with_suffix(".html")]
        if lost := Page(path).anchors - html.ids:
            missing[path.name] = lost
    assert missing == {}


def test_every_old_path_leads_on(pages):
    """Each page of before has a page that leads to one that exists."""
    for old, new in MOVED.items():
        links = pages[HTML / f"{old}.html"].links
        assert [internal(pages[HTML / f"{old}.html"], link)[0] for link in links] == [HTML / f"{new}.html"]


def test_fields_of_models_are_described():
    """A pydantic field has its type, docstring and default, also where a base class in another module defines it."""
    text = (HTML / "api" / "nat.plugins.openpipe.config.html").read_text("utf-8")
    field = text.partition('id="nat.plugins.openpipe.config.ARTTrajectoryBuilderConfig.num_generations"')[2]
    for part in ('<span class="pre">int</span>', "Rollouts of each example per epoch", '<span class="pre">2</span>'):
        assert part in field[:2500]
