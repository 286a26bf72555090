"""Figures of pages come from docs/evidence/figures, one file for each table."""

import re
from pathlib import Path

import pytest
from bench import figures, report

FILES = sorted(figures.FIGURES.glob("*.csv"))
PRINTED = """\
## gateway

| between | CPU, ms | calls | measured |
|---|---:|---:|---|
| proxy | 3.11 | 1,282 | 2026-11-28 10:00, load 0.1 |
| LiteLLM | 37.89 | 27 | 2026-11-28 10:01, load 0.2 |
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A repository of its own, with one page."""
    folder = tmp_path / "docs" / "evidence" / "figures"
    folder.mkdir(parents=True)
    (folder / "quotes.toml").write_text("")
    (tmp_path / "README.md").write_text("")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "FIGURES", folder)
    return folder


def test_pages_have_the_figures_of_the_files():
    """The committed pages equal what `make docs` makes of them."""
    assert [path for path, text in figures.pages() if path.read_text("utf-8") != text] == [], "run `make docs`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_say_when_and_where(path: Path):
    """Each row has a date, the load, as far as it was recorded, and the machine."""
    for row in figures.read(path.stem):
        assert tuple(row)[-3:] == figures.CIRCUMSTANCES
        assert re.match(r"2\d{3}-\d\d", row["measured"])
        assert row["load"]
        assert row["machine"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_page_names_each_file(path: Path):
    """What was measured is on a page, or linked from one."""
    texts = [page.read_text("utf-8") for page in (figures.ROOT / "docs").rglob("*.md")]
    quotes = (figures.FIGURES / "quotes.toml").read_text("utf-8")
    assert any(re.search(rf"figures[/ ]{path.stem}\b", text) for text in texts) or f"{path.stem} > " in quotes


def test_tables_of_evidence_come_from_files():
    """No table of figures is written by hand; the index has none, and the frameworks have a script of their own."""
    for page in sorted((figures.ROOT / "docs" / "evidence").glob("*.md")):
        by_hand = re.sub(rf"<!-- figures .*?{figures.END}", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert page.stem in ("index", "frameworks") or not re.search(r"^\|", by_hand, flags=re.MULTILINE), page


def test_printed_rows_replace_those_of_the_same_name(folder: Path):
    """The others stay; a count loses its comma in the file, and has it on the page."""
    page = folder.parent / "speed.md"
    page.write_text("<!-- figures gateway columns: between | calls -->\n<!-- end -->\n")
    report.keep("gateway", PRINTED)
    report.keep("gateway", PRINTED.replace("LiteLLM", "gateway").replace("3.11", "0.59").replace("1,282", "317"))
    lines = (folder / "gateway.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines[1:]] == [
        ["proxy", "0.59", "317"],
        ["LiteLLM", "37.89", "27"],
        ["gateway", "37.89", "27"],
    ]
    assert lines[1].split(",")[3:5] == ["2026-11-28 10:00", "0.1"]
    assert "| proxy | 317 |\n| LiteLLM | 27 |" in page.read_text()
    report.keep("gateway", PRINTED)
    assert "| proxy | 1,282 |" in page.read_text()


def test_a_table_goes_into_the_file_that_has_its_columns(folder: Path):
    """A bench may have several; one without a file is an error that says so."""
    report.keep("gateway", PRINTED)
    (folder / "gateway.csv").rename(folder / "gateway_load.csv")
    report.keep("gateway", PRINTED.replace("proxy", "other"))
    assert [row["between"] for row in figures.read("gateway_load")] == ["proxy", "LiteLLM", "other"]
    report.keep("gateway", PRINTED.replace("CPU, ms", "CPU, s"))
    with pytest.raises(SystemExit, match=r"no file .*gateway.* has the columns between, CPU, h"):
        report.keep("gateway", PRINTED.replace("CPU, ms", "CPU, h"))


def test_a_mark_chooses_rows_and_columns(folder: Path):
    """Runs of several seeds share a line unless their seed is shown."""
    when = {"measured": "2026-11-28", "load": "0", "machine": "m"}
    runs = [(task, seed) for task in "ab" for seed in "01"]
    rows = [{"task": task, "seed": seed, "after": f"0.{n}", **when} for n, (task, seed) in enumerate(runs)]
    figures.write("real", rows)
    assert figures.table("real", columns="task | after").splitlines()[2:] == ["| a | 0.0, 0.1 |", "| b | 0.2, 0.3 |"]
    assert figures.table("real", "^b").splitlines() == [
        "| task | seed | after |",
        "|---|---:|---:|",
        "| b | 0 | 0.2 |",
        "| b | 1 | 0.3 |",
    ]
    with pytest.raises(SystemExit, match=r"no row of real\.csv has"):
        figures.table("real", "^c")


def test_sentences_quote_figures(folder: Path):
    """Any numbers stand in their places, also after a line break; a sentence that the page lost is an error."""
    figures.write("demo", [{"run": "a", "after": "0.897", "tokens": "58716"}])
    sentence = "ended at {demo > a > after} on {demo > a > tokens} tokens"
    assert figures.quote("It ended\nat 0.1 on 1,234 tokens.", sentence) == "It ended\nat 0.897 on 58,716 tokens."
    with pytest.raises(SystemExit, match=r"quotes\.toml"):
        figures.quote("It stopped.", sentence)
    with pytest.raises(SystemExit, match=r"0 rows of demo\.csv"):
        figures.value("demo > b > after")
    assert figures.value("mean demo > after") == "0.90"
