"""What was measured: a file for each table in docs/evidence/figures, from which all pages take their figures.

    python -m bench.figures     # writes the figures into the pages again, as `make docs` does

A page has a table between `<!-- figures NAME -->` and `<!-- end -->`. In the first mark, `rows: REGEX`
chooses rows, and `columns: A | B` columns by their names or how these begin. `quotes.toml` lists sentences that quote a
figure.
"""

import csv
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "evidence" / "figures"
CIRCUMSTANCES = ("measured", "load", "machine")
"""Columns of every file; a table shows those that its mark names."""
END = "<!-- end -->"
_TABLE = re.compile(rf"(<!-- figures (\S+)(?:\s+rows: (.+?))?(?:\s+columns: (.+?))?\s*-->\n)(.*?){END}", re.DOTALL)
_NUMBER = r"([+-]?\d+(?:[.,]\d+)*)"
_NUMERIC = re.compile(rf"{_NUMBER}?(e-\d+| ?%)?|\u2013")

Rows = list[dict[str, str]]


def read(name: str) -> Rows:
    """The rows of a file, column → cell."""
    with (FIGURES / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(name: str, rows: Rows) -> None:
    """Write a file."""
    with (FIGURES / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def stored(cell: str) -> str:
    """The cell as files have it: a count has no commas."""
    return cell.replace(",", "") if re.fullmatch(r"-?\d{1,3}(,\d{3})+", cell) else cell


def shown(cell: str) -> str:
    """The cell as pages show it: thousands have commas."""
    return f"{int(cell):,}" if re.fullmatch(r"-?\d{4,}", cell) else cell


def table(name: str, having: str | None = None, columns: str | None = None) -> str:
    """The rows in which the expression is found, as Markdown."""
    found = [row for row in read(name) if re.search(having or "", " | ".join(list(row.values())[:-3]))]
    if not found:
        raise SystemExit(f"no row of {name}.csv has {having!r}")
    titles = _titles(list(found[0]), columns)
    cells = [[shown(row[title]) for title in titles] for row in found]
    if "seed" in found[0] and "seed" not in titles:
        cells = _seeds_together(found, cells)
    sides = ["---:" if all(map(_NUMERIC.fullmatch, column)) else "---" for column in zip(*cells, strict=True)]
    lines = [f"| {' | '.join(titles)} |", f"|{'|'.join(sides)}|", *(f"| {' | '.join(row)} |" for row in cells)]
    return "\n".join(lines) + "\n"


def _titles(every: list[str], columns: str | None) -> list[str]:
    """The columns that a mark names; without names, all but the circumstances."""
    if columns is None:
        return [title for title in every if title not in CIRCUMSTANCES]
    found: list[str] = []
    for name in re.split(r"\s+\|\s+", columns):
        found += [name] if name in every else [title for title in every if title.startswith(name)]
    return found


def _seeds_together(rows: Rows, cells: list[list[str]]) -> list[list[str]]:
    """One line for the rows that are equal before their seed; cells that differ stand side by side."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for row, line in zip(rows, cells, strict=True):
        groups.setdefault(tuple(row.values())[: list(row).index("seed")], []).append(line)
    columns = [[[cell for cell in column if cell] for column in zip(*lines, strict=True)] for lines in groups.values()]
    return [[", ".join(each if len(set(each)) > 1 else each[:1]) for each in line] for line in columns]


def value(reference: str) -> str:
    """The figure that `FILE > first cells of a row > column` names; after `mean `, the mean over such rows."""
    name, *cells, column = reference.removeprefix("mean ").split(" > ")
    found = [row[column] for row in read(name) if list(row.values())[: len(cells)] == cells]
    if reference.startswith("mean ") and found:
        return f"{fmean(map(float, found)):.2f}"
    if len(found) != 1:
        raise SystemExit(f"{len(found)} rows of {name}.csv begin with {cells}")
    return shown(found[0])


def quote(text: str, sentence: str) -> str:
    """Put the figures into each place of the text that has the sentence, with any numbers and line breaks."""
    parts = re.split(r"\{(.+?)\}", sentence)
    figures = [value(part) for part in parts[1::2]]
    words = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in parts[::2]]
    text, count = re.subn(_NUMBER.join(words), lambda match: _put(match, figures), text)
    if not count:
        raise SystemExit(f"no page sentence is like {sentence!r}; mend {FIGURES}/quotes.toml")
    return text


def _put(match: re.Match[str], figures: list[str]) -> str:
    """The match with these figures as its groups."""
    ends = [match.start(), *(match.end(group) for group in range(1, len(figures) + 1))]
    starts = [*(match.start(group) for group in range(1, len(figures) + 1)), match.end()]
    between = [match.string[end:start] for end, start in zip(ends, starts, strict=True)]
    return "".join(text for pair in zip(between, [*figures, ""], strict=True) for text in pair)


def pages() -> Iterator[tuple[Path, str]]:
    """Each page with figures, and its text with the figures of today."""
    quotes = tomllib.loads((FIGURES / "quotes.toml").read_text(encoding="utf-8"))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        text = _TABLE.sub(lambda match: match[1] + table(match[2], match[3], match[4]) + END, text)
        for sentence in quotes.pop(str(path.relative_to(ROOT)), ()):
            text = quote(text, sentence)
        yield path, text
    if quotes:
        raise SystemExit(f"quotes.toml names pages that do not exist: {', '.join(quotes)}")


def main() -> None:
    """Write the pages that differ."""
    for path, text in list(pages()):
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
