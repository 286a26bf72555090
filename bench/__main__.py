"""`python -m bench [name …]`: run the benches named, all of them without a name, and print their tables."""

import runpy
import sys

BENCHES = ("harness", "frameworks", "gateway", "sampler", "learner", "epochs", "verdict")

names = sys.argv[1:] or BENCHES
del sys.argv[1:]  # the benches have options of their own
for name in names:
    if name not in BENCHES:
        sys.exit(f"there is no bench {name!r}; there are {', '.join(BENCHES)}")
    print(f"\n## {name}\n", flush=True)
    runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)
