"""From the end of an update to an answer by the new weights, by the size of the model: the embedded engine.

    python -m bench.hand_over                     # 0.4 M and 135 M weights
    python -m bench.hand_over --shapes tiny

Learner and sampler share the weights, so nothing is copied; what grows is the checkpoint. Each case is the epoch of
`bench.gpu_case` in a process of its own, on a CPU with one thread.
"""

import argparse
import json
import os
import subprocess
import sys
from operator import itemgetter
from typing import Any

from bench.ceiling import num_weights
from bench.report import now
from bench.shapes import SHAPES

HEAD = (
    "| shape, what is trained | weights | update, s | checkpoint, s | to the next answer, s | measured |",
    "|---|---:|---:|---:|---:|---|",
)
MODES = {"lora": "LoRA, rank 16", "full": "all weights"}
CHATS, PROMPT, ROUNDS = 8, 16, 3
FIRST = "first_answer_seconds"


def main() -> None:
    """Print a line for each shape and mode; the median of three epochs."""
    parser = argparse.ArgumentParser(prog="python -m bench.hand_over", description=main.__doc__)
    parser.add_argument("--shapes", choices=SHAPES, nargs="+", default=["tiny", "smollm2-135m"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    print("\n".join(HEAD), flush=True)
    for shape in options.shapes:
        for mode, title in MODES.items():
            found = [measured(shape, mode) for _ in range(options.rounds)]
            print(row(shape, title, sorted(found, key=itemgetter(FIRST))[len(found) // 2]), flush=True)


def measured(shape: str, mode: str) -> dict[str, Any]:
    """The parts of one epoch."""
    command = [sys.executable, "-m", "bench.gpu_case", f"--shape={shape}", f"--mode={mode}", "--device=cpu"]
    command += ["--part=epoch", f"--chats={CHATS}", f"--prompts={PROMPT}"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    if found.get("status") != "completed":
        raise SystemExit(f"{shape}, {mode}: {found}")
    return found


def row(shape: str, title: str, found: dict[str, Any]) -> str:
    """The line of the table."""
    times = (found[f"{part}_seconds"] for part in ("update", "checkpoint", "first_answer"))
    figures = " | ".join(f"{seconds:.3f}" for seconds in times)
    return f"| {shape}, {title} | {num_weights(SHAPES[shape]()) / 1e6:,.1f} M | {figures} | {now()} |"


if __name__ == "__main__":
    main()
