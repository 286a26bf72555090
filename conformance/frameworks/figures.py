"""Keep the figures of each framework's last run, and write the docs page from them.

`python -m conformance.frameworks.figures` writes `docs/evidence/frameworks.md`; `--check` compares.
"""

import fcntl
import json
import sys
from typing import Any

from conformance.environments import REPOSITORY
from conformance.frameworks.compare import differences
from conformance.frameworks.driver import Played, names

FILE = REPOSITORY / ".tmp" / "frameworks.json"
PAGE = REPOSITORY / "docs" / "evidence" / "frameworks.md"

HEAD = """\
# Frameworks, as tested

`conformance/frameworks/figures.py` generates this page from the figures of `make conformance PART=frameworks`, which runs one
scripted agent in each framework, in an environment of its own, against a scripted server. The agent has
conversations of several turns, calls a tool with arguments, two tools in parallel and a tool that fails, repeats a
text, repeats a question from the beginning, retries a refused request, calls a sub-agent with its own system prompt,
sends an image, and streams. It does so once, in 32 concurrent rollouts, and in 8 threads. The test compares every
captured call with the server's record, in order: messages, tools, answer, log probabilities, token ids and function.

Agents named `…_sync` or `…_blocking` use the framework's blocking functions, in a thread.

| agent | version | captured / made | differences | rows per rollout | broken prefixes |
|---|---|---|---|---|---|
"""

TAIL = """
- *Rows per rollout*: 12 if the framework sends each history back unchanged: ten conversations, the repeated question
  and the sub-agent. Any other number means that the framework sends other requests than the script expects.
- *Broken prefixes*: calls over all rollouts that continue a conversation by its text but not by its tokens.
"""


def figures(played: Played) -> dict[str, Any]:
    """The figures of a framework for the table."""
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


def keep(played: Played, testrun: str) -> None:
    """Write the framework's figures into the file; other processes may write theirs at the same time.

    Fails if another process of the same run of pytest has played this framework's agent too.
    """
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        before = known.get(played.framework, {})
        assert before.get("testrun") != testrun, f"two processes have played the agent of {played.framework}"
        known[played.framework] = figures(played) | {"testrun": testrun}
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
    """The figures of every agent; KeyError if one has not been run."""
    known = json.loads(FILE.read_text())
    return {name: known[name] for name in names()}


def main(*, check: bool) -> None:
    """Write the page; with `--check`, fail if it is out of date."""
    text = page(last_runs())
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is out of date. Write it: PYTHONPATH=tests python -m conformance.frameworks.figures")


if __name__ == "__main__":
    main(check="--check" in sys.argv[1:])
