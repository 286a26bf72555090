"""Record the runs again: `cd tests && python -m recorded [NAME …]`. Read the difference before you commit it."""

import sys
import tempfile
from pathlib import Path

from recorded.facts import facts
from recorded.playing import play
from recorded.runs import RUNS

DATA = Path(__file__).with_name("data")

for name in sys.argv[1:] or RUNS:
    with tempfile.TemporaryDirectory() as folder:
        play(name, Path(folder))
        (DATA / f"{name}.jsonl").write_text("\n".join(facts(Path(folder) / "runs" / "latest")) + "\n")
    print(name)
