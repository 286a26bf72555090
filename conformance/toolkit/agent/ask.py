"""Answer one question: `python ask.py < question`. For training with a process per example."""

import asyncio
import sys
from pathlib import Path

from nat.utils import run_workflow

CONFIG = Path(__file__).with_name("agent.yml")

if __name__ == "__main__":
    print(asyncio.run(run_workflow(config_file=CONFIG, prompt=sys.stdin.read())))
