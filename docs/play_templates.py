"""What the server makes of the chat templates in a folder: `python docs/play_templates.py FOLDER > rows.csv`.

The project stores no public templates; `evidence/figures/templates.csv` has the rows of those that were played.
"""

import asyncio
import csv
import logging
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes.template_play import Played, played

_MARKS = {"lfm2": ("<|tool_call_start|>", "<|tool_call_end|>")}
"""Special tokens that a family's tokenizers have and its templates do not write."""


async def row(name: str, text: str) -> list[str]:
    """What `reference/templates.md` says of the columns."""
    marks = [mark for family, own in _MARKS.items() if family in name.lower() for mark in own]
    found: Played = await played(text, marks=marks)
    if found.renders:
        return [name, "not rendered", "", "", "", "", "", found.renders.splitlines()[0]]
    failed = [f"{turn}: {problem.splitlines()[0]}" for turn, problem in found.failed.items()]
    return [
        name,
        "none" if found.tried else "template" if found.format.startswith("found") else found.format,
        _words([found.one, found.several, found.streamed]),
        _words([found.cut, found.malformed]),
        _words([found.reasoning, found.kept]),
        _words([found.null]),
        f"{found.loop_rows or '-'}, {found.rows or '-'}",
        "; ".join([*failed, *found.drift, *found.tried.splitlines()[:1]]),
    ]


def _words(values: Iterable[bool | None]) -> str:
    """One word if all are equal."""
    words = [{True: "yes", False: "no", None: "-"}[value] for value in values]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # a column says which calls may be lost
    rows = csv.writer(sys.stdout)
    rows.writerow(["template", "format", "calls", "cut; malformed", "thinking", "null", "rows", "remarks"])
    for template in sorted(Path(sys.argv[1]).glob("*.jinja")):
        rows.writerow(asyncio.run(row(template.stem, template.read_text("utf-8"))))
