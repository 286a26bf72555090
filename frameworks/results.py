"""The figures of each framework's run, kept for the table in the docs: one entry each, the newest run's."""

import fcntl
import json
from pathlib import Path
from typing import Any

from compare import differences
from playing import Played

FILE = Path(__file__).parents[1] / ".tmp" / "frameworks" / "results.json"


def figures(played: Played) -> dict[str, Any]:
    """What the table says about a framework."""
    names = list(played.rollouts)
    wrong = [differences(played.served[name], played.rollouts[name]["calls"]) for name in names]
    return {
        "versions": dict(played.versions),
        "made": sum(call.completion is not None for calls in played.served.values() for call in calls),
        "captured": sum(len(played.rollouts[name]["calls"]) for name in names),
        "mismatches": sum(map(len, wrong)),
        "rollouts": len(names),
        "rows_per_rollout": sum(map(played.rows, names)) / len(names),
        "broken_prefixes": sum(map(played.broken_prefixes, names)),
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
