"""Write `docs/reference/frameworks.md` from the figures of the last runs (`make frameworks`); `--check` compares."""

import json
import sys
from pathlib import Path
from typing import Any

import environments
import results

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "frameworks.md"

HEAD = """\
# Frameworks, as tested

This page is made by `frameworks/make_table.py` from the figures of `make frameworks`, which plays one scripted agent
in each framework, in an environment of its own, against a scripted server. The agent talks over several turns, calls a
tool with arguments, two tools at once and one that fails, says the same text twice, asks the same question again from
the beginning, is refused once and asks again, asks a sub-agent with a system prompt of its own, shows a picture, and
streams. It does so once, in 32 rollouts at once, and in 8 threads. What was captured is compared with what the server
saw: every call, in order, with its messages, tools, answer, log probabilities, token ids and function.

An agent named `…_sync` or `…_blocking` is played through the framework's blocking functions, in a thread.

| agent | version | captured / made | differences | rows per rollout | broken prefixes |
|---|---|---|---|---|---|
"""

TAIL = """
- *Rows per rollout*: 12 if the framework sends each history back as it was: ten conversations, the repeated question
  and the sub-agent. Another number says that the framework asks otherwise than the script expects.
- *Broken prefixes*: calls that go on with a conversation in words, but not token by token, over all rollouts.
"""


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
    known = json.loads(results.FILE.read_text())
    return {name: known[name] for name in environments.names()}


def main(*, check: bool) -> None:
    """Write the page, or end with an error where it is not what the runs gave."""
    text = page(last_runs())
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is not what the runs gave. Write it: PYTHONPATH=tests python frameworks/make_table.py")


if __name__ == "__main__":
    main(check="--check" in sys.argv[1:])
