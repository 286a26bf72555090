"""Run the named benches, or all of them, and print their tables: `python -m bench gateway learner`.

One bench may have options of its own: `python -m bench sampler --case 135m`.
"""

import argparse
import runpy
import shlex
import sys

from bench.report import machine, now

BENCHES = ("harness", "gateway", "sampler", "learner", "learner_real")
LONG = ("real", "gpu")
"""Benches that run only where they are named."""

parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES + LONG))
options, own = parser.parse_known_args()
if own and len(options.names) != 1:
    parser.error(f"{shlex.join(own)}: options of a bench need its name")
sys.argv[1:] = own
for name in options.names or BENCHES:
    if name not in BENCHES + LONG:
        parser.error(f"there is no bench {name!r}; there are {', '.join(BENCHES + LONG)}")
    print(f"\n## {name}\n\n{now()}; {machine()}\n", flush=True)
    runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)
