"""How time and memory of the embedded backend grow with the prompt, the turns, the chats and the rows of an update.

    python -m bench.growth --shape smollm2-135m --dtype float32

Each line is measured once, in one server for all lines of a kind, the smallest first; the memory is the most that the
server held meanwhile. The first seconds are those until all chats have their first token. A step gives each chat a
token: its time is that of answers of 33 tokens, without that of answers of one, divided by 32. The updates run in
processes of their own.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

from bench.load import Load, play
from bench.process_tree import Usage, measured
from bench.report import machine, now
from bench.servers import Limits, our_backend
from bench.shapes import CACHE, DTYPES, SHAPES, checkpoint

PROMPTS, TURNS, CHATS, ROWS = (128, 512, 2048, 4000), (1, 4, 12), (1, 4, 16, 64), (8, 16, 32)
TURN = Load(1, 300, 32)
ROW_TOKENS = 128
STEPS = 32
HEAD = ["| what grows: case | seconds | each step, ms | MB |", "|---|---:|---:|---:|"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=main.__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the sampler; updates are in float32")
    parser.add_argument("--case", choices=("prompt", "turns", "chats", "rows"), nargs="+", help="only what grows so")
    options = parser.parse_args()
    shape, cases = options.shape, options.case or ["prompt", "turns", "chats", "rows"]
    print(f"{machine()}, {now()}; {shape}, {options.dtype}\n\n" + "\n".join(HEAD), flush=True)
    for case in cases:
        lines = _updates(shape) if case == "rows" else _loads(case, shape, options.dtype)
        for line in lines:
            print(line, flush=True)


def _loads(case: str, shape: str, dtype: str) -> Iterator[str]:
    """The lines of the sampler."""
    model, vocabulary = checkpoint(shape, dtype, cache=CACHE), SHAPES[shape]().vocab_size
    loads = {
        "prompt": [Load(1, prompt, 1) for prompt in PROMPTS],
        "turns": [replace(TURN, turns=turns) for turns in TURNS],
        "chats": [Load(chats, 128, 1) for chats in CHATS],
    }[case]
    limits = Limits(dtype, max(load.chats for load in loads), max(load.longest for load in loads) + STEPS)
    with our_backend(model, limits) as server:

        def run(load: Load) -> Usage:
            with measured(server.pid) as usage:
                play(server, load, seed=str(load), vocabulary=vocabulary)
            return usage

        run(Load(1, 16, 2))
        for load in loads:
            first, step, peak = run(load), "", 0.0
            if case != "turns":
                whole = run(replace(load, answer=1 + STEPS))
                step, peak = f"{1000 * (whole.seconds - first.seconds) / STEPS:,.1f}", whole.peak_mb
            yield f"| {case}: {load} | {first.seconds:.2f} | {step} | {max(peak, first.peak_mb):,.0f} |"


def _updates(shape: str) -> Iterator[str]:
    """The lines of the learner: full weights, float32."""
    for rows in ROWS:
        command = [sys.executable, "-m", "bench.gpu_case", f"--shape={shape}", "--device=cpu", "--part=learner"]
        sizes = [f"--lengths={ROW_TOKENS}", f"--tokens={rows * ROW_TOKENS}"]
        ended = subprocess.run([*command, *sizes], check=True, stdout=subprocess.PIPE)
        figure = json.loads(ended.stdout.splitlines()[-1])
        seconds = rows * ROW_TOKENS / figure["tokens_per_second"]
        yield f"| rows: update of {rows} x {ROW_TOKENS} tokens | {seconds:.2f} | | {1000 * figure['peak_gb']:,.0f} |"


if __name__ == "__main__":
    main()
