"""The figures of each framework's last run, and the page of the docs that is made from them.

`python -m conformance.frameworks.figures` writes `docs/reference/frameworks.md`; `--check` compares.
"""

import fcntl
import json
import sys
from typing import Any

from conformance.environments import REPOSITORY
from conformance.frameworks.compare import differences
from conformance.frameworks.driver import Played, names

FILE = REPOSITORY / ".tmp" / "frameworks.json"
PAGE = REPOSITORY / "docs" / "reference" / "frameworks.md"

HEAD = """\
# Frameworks, as tested

This page is made by `conformance/frameworks/figures.py` from the figures of `make frameworks`, which plays one
scripted agent in each framework, in an environment of its own, against a scripted server. The agent talks over several
turns, calls a tool with arguments, two tools at once and one that fails, says the same text twice, asks the same
question again from the beginning, is refused once and asks again, asks a sub-agent with a system prompt of its own,
shows a picture, and streams. It does so once, in 32 rollouts at once, and in 8 threads. What was captured is compared
with what the server saw: every call, in order, with its messages, tools, answer, log probabilities, token ids and
function.

An agent named `…_sync` or `…_blocking` is played through the framework's blocking functions, in a thread.

| agent | version | captured / made | differences | rows per rollout | broken prefixes |
|---|---|---|---|---|---|
"""

TAIL = """
- *Rows per rollout*: 12 if the framework sends each history back as it was: ten conversations, the repeated question
  and the sub-agent. Another number says that the framework asks otherwise than the script expects.
- *Broken prefixes*: calls that go on with a conversation in words, but not token by token, over all rollouts.
"""


def figures(played: Played) -> dict[str, Any]:
    """What the table says about a framework."""
    rollouts = list(played.rollouts)
    wrong = [differences(played.served[name], played.rollouts[name]["calls"]) for name in rollouts]
    return {
        "versions": dict(played.versions),
        "made": sum(call.completion is not None for calls in played.served.values() for call in calls),
        "captured": sum(len(played.rollouts[name]["calls"]) for name in rollouts),
        "mismatches": sum(map(len, wrong)),
        "rollouts": len(rollouts),
        "rows_per_rollout": sum(map(played.rows, rollouts)) / len(rollouts),
        "broken_prefixes": sum(map(played.broken_prefixes, rollouts)),
        "blocks": played.blocks,
        "cannot": dict(played.cannot),
        "seconds": played.seconds,
    }


def keep(played: Played) -> None:
    """Put the framework's figures into the file, beside those of the others, which may be played at the same time."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        known[played.framework] = figures(played)
        file.truncate(0)
        file.write(json.dumps(known, indent=1, sort_keys=True) + "\n")


def page(known: dict[str, dict[str, Any]]) -> str:
    """The page's text."""
    notes = [
        f"- `{name}` does not play *{scene}*: {why}."
        for name, row in sorted(known.items())
        for scene, why in row["cannot"].items()
    ]
    text = HEAD + "".join(_row(name, row) for name, row in sorted(known.items())) + TAIL
    return text + "".join(f"{note}\n" for note in notes)


def _row(name: str, row: dict[str, Any]) -> str:
    package, version = next(iter(row["versions"].items()))
    counts = f"{row['captured']} / {row['made']} | {row['mismatches']}"
    return f"| `{name}` | {package} {version} | {counts} | {row['rows_per_rollout']:g} | {row['broken_prefixes']} |\n"


def last_runs() -> dict[str, dict[str, Any]]:
    """The figures of every agent that there is; KeyError if one was not played yet."""
    known = json.loads(FILE.read_text())
    return {name: known[name] for name in names()}


def main(*, check: bool) -> None:
    """Write the page, or end with an error where it is not what the runs gave."""
    text = page(last_runs())
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is out of date. Write it: PYTHONPATH=tests python -m conformance.frameworks.figures")


if __name__ == "__main__":
    main(check="--check" in sys.argv[1:])
