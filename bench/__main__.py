"""Run the named benches, or all of them, and print their tables."""

import argparse
import runpy
import sys

from bench.report import machine, now

BENCHES = (
    "harness",
    "traces",
    "frameworks",
    "ray_workers",
    "ray_demo",
    "gateway",
    "engines",
    "ceiling",
    "sampler",
    "deterministic",
    "growth",
    "learner",
    "learner_real",
    "ranks",
    "hand_over",
    "tinker_update",
    "memory",
    "disk",
    "many_rollouts",
    "epochs",
    "overlap",
    "verdict",
    "defaults",
    "choosing",
    "distill",
    "algorithms",
    "judge",
    "simulate",
)

parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
names = parser.parse_args().names or BENCHES
del sys.argv[1:]  # the benches have options of their own
for name in names:
    if name not in BENCHES:
        parser.error(f"there is no bench {name!r}; there are {', '.join(BENCHES)}")
    print(f"\n## {name}\n\n{now()}; {machine()}\n", flush=True)
    runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)
