"""Write `tests/unit/backend/training/trl_losses.json`: what TRL computes on the batches of `preference_batches`.

PYTHONPATH=tests python -m conformance.trl.golden
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from conformance.environments import REPOSITORY, python_of

from fakes.preference_batches import CASES, make_models, trl_examples

GOLDEN = REPOSITORY / "tests" / "unit" / "backend" / "training" / "trl_losses.json"
SCRIPT = Path(__file__).with_name("losses.py")
DEADLINE_S = 600


def computed_by_trl(folder: Path) -> list[dict[str, Any]]:
    """Loss and gradient of each case."""
    policy, reference = make_models(folder)
    cases = [
        {"method": method, "arguments": arguments, "examples": trl_examples(method)} for method, _, arguments in CASES
    ]
    request = folder / "request.json"
    request.write_text(json.dumps({"policy": str(policy), "reference": str(reference), "cases": cases}))
    command = [python_of("trl"), SCRIPT, request]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        GOLDEN.write_text(json.dumps(computed_by_trl(Path(temporary)), indent=1) + "\n")
