"""The demo with rollouts on a Ray cluster of two local nodes, beside the same in one process: seconds to the verdict.

    python -m bench.ray_demo                   # three runs of each, in turn, of 12 epochs
    python -m bench.ray_demo --epochs 60 --times 1

Both run in the environment of Ray, on this machine's cores, which other work may share: the line has the load.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path
from statistics import median

from conformance.environments import REPOSITORY, outside, python_of

from nat.runs.journal import reading

CONFIG = "examples/tic_tac_toe/configs/finetune.yml"
HELD_OUT = "examples/tic_tac_toe/data/validation.jsonl"
NAT = "from nat.cli.main import run_cli; run_cli()"
NODES = 2
MEMORY = 100 * 2**20
RAY = {
    "RAY_worker_niceness": "0",  # as one process has; 15 otherwise, which other work on the cores would starve
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_raylet_start_wait_time_s": "180",
}
HERE, THERE = "in one process", f"on Ray, {NODES} nodes"
BOUND = 1.3
"""Times the seconds of one process, after the start, that two nodes may take."""
HEAD = """\
| rollouts | run | to the first rollout, s | from there to the verdict, s | before | after | load |
|---|---|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True)
class Run:
    """One run's figures."""

    where: str
    start: float
    """Seconds from the start of the process to the first rollout."""
    rest: float
    """Seconds from there to the end of the process, which follows the verdict."""
    before: float
    after: float
    load: float

    def row(self, number: int) -> str:
        """The line of the table."""
        figures = f"{self.start:.1f} | {self.rest:.1f} | {self.before:.3f} | {self.after:.3f} | {self.load:.1f}"
        return f"| {self.where} | {number} | {figures} |"


def main() -> None:
    """Print a line for each run, and the ratio of the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.ray_demo", description=main.__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--examples", type=int, default=24, help="of an epoch, with 8 games each")
    parser.add_argument("--held_out", type=int, default=300, help="games of a validation; the verdict needs six")
    options = parser.parse_args()
    print(HEAD, flush=True)
    runs = []
    for where in chain.from_iterable(repeat((HERE, THERE), options.times)):
        runs.append(measured(where, options))
        print(runs[-1].row((len(runs) + 1) // 2), flush=True)
    here, there = (median(run.rest for run in runs if run.where == where) for where in (HERE, THERE))
    print(f"\nAfter the start, Ray took {there / here:.2f} times as long; {BOUND} is the bound.")


def measured(where: str, sizes: argparse.Namespace) -> Run:
    """Train once."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, rollouts(where) as options:
        lines = (REPOSITORY / HELD_OUT).read_text().splitlines(keepends=True)
        held_out = Path(folder) / "held_out.jsonl"
        held_out.write_text("".join(lines[: sizes.held_out]))
        settings = {
            "finetuning.num_epochs": sizes.epochs,
            "finetuning.output_dir": folder,
            "finetuning.run_configuration.validation_dataset": held_out,
            "trajectory_builders.games.examples_per_epoch": sizes.examples,
            **options,
        }
        overrides = [part for key, value in settings.items() for part in ("-o", key, str(value))]
        command = [str(python_of("ray")), "-c", NAT, "finetune", f"--config_file={CONFIG}", *overrides]
        command += ["--import", "tic_tac_toe.register"]
        env = environment()
        began, clock = time.time(), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env, cwd=REPOSITORY)
        whole = time.perf_counter() - clock
        with reading(Path(folder) / "latest") as journal:
            first, summary = journal.validations()[0], journal.summary()
    start = (first.timestamp - timedelta(seconds=first.seconds)).timestamp() - began
    assert summary is not None
    assert summary.before is not None
    assert summary.after is not None
    return Run(where, start, whole - start, summary.before, summary.after, load)


@contextmanager
def rollouts(where: str) -> Iterator[dict[str, object]]:
    """The options of `nat finetune`, while the cluster runs."""
    if where == HERE:
        yield {}
        return
    command = [str(python_of("ray")), __file__, "nodes"]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdout is not None, "a pipe"
        address = next(line for line in cluster.stdout if line.startswith("{"))
        yield {"finetuning.rollouts": json.dumps({"ray": json.loads(address)["address"], "workers": NODES})}
        cluster.communicate()  # the end of its stdin ends the cluster


def environment() -> dict[str, str]:
    """Each process computes with one thread, and Ray stays on loopback."""
    paths = (REPOSITORY, REPOSITORY / "src", REPOSITORY / "examples/tic_tac_toe/src")
    return outside() | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1", **RAY}


def nodes() -> None:
    """Run a cluster whose nodes play one process each, until stdin ends."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(NODES):
            cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        print(json.dumps({"address": cluster.address}), flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    if sys.argv[1:] == ["nodes"]:
        nodes()
    else:
        main()
