"""Rollouts per second of an agent that computes, in this process and in processes on Ray, and what Ray adds to one.

    python -m bench.ray_workers

The agent of `conformance/ray` needs no model: it computes 0.1 s of CPU time, or answers at once. The rows are the best
of three; on a busy machine compare them with the load.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from conformance.environments import REPOSITORY, outside, python_of

AGENT = REPOSITORY / "conformance" / "ray" / "agent.py"
TIMES = 3
COMPUTES = "compute 0.1", 60
ANSWERS = "wait 0", 400
HEAD = [
    "| played | rollouts per second that compute 0.1 s | a rollout that answers at once, ms |",
    "|---|---:|---:|",
]


async def measured(workers: int) -> dict[str, float]:
    """The figures with so many processes; 0: without Ray."""
    from nat.config.load import load_config
    from nat.data_models.evaluator import EvalInputItem
    from nat.rollout.session import opened_session

    general: dict[str, Any] = {"max_concurrency": 8}
    if workers:
        general["rollouts"] = {"workers": workers}
    tree = {"imports": [str(AGENT)], "workflow": {"_type": "acts_on_its_process"}, "eval": {"general": general}}
    file = Path("config.json")
    file.write_text(json.dumps(tree))  # noqa: ASYNC240 - before anything is measured
    async with opened_session(load_config(file)) as session:

        async def seconds(what: str, count: int) -> float:
            items = [EvalInputItem(id=str(n), input_obj=what, expected_output_obj=None) for n in range(count)]
            began = time.perf_counter()
            rollouts = await asyncio.gather(*(session.run(item, seed=0) for item in items))
            assert not any(each.failed for each in rollouts)
            return time.perf_counter() - began

        await seconds(*ANSWERS)
        compute = min([await seconds(*COMPUTES) for _ in range(TIMES)])
        answer = min([await seconds(*ANSWERS) for _ in range(TIMES)])
    return {"per_second": COMPUTES[1] / compute, "overhead": 1000 * answer / ANSWERS[1]}


def main() -> None:
    """Print the table."""
    print("\n".join(HEAD), flush=True)
    names = {0: "in this process", 1: "on Ray, 1 process", 2: "on Ray, 2 processes"}
    for workers, name in names.items():
        with tempfile.TemporaryDirectory() as home:
            env = outside() | {"PYTHONPATH": str(REPOSITORY), "HOME": home, "OMP_NUM_THREADS": "1"}
            command = [str(python_of("ray")), "-m", "bench.ray_workers", str(workers)]
            said = subprocess.check_output(command, cwd=home, env=env, text=True)
        found = json.loads(said.splitlines()[-1])
        print(f"| {name} | {found['per_second']:.1f} | {found['overhead']:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(measured(int(sys.argv[1])))))
    else:
        main()
