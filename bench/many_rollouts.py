"""Seconds and memory of looking at runs of 100,000 rollouts: the commands, the pages of `nat ui`, and the findings.

    python -m bench.many_rollouts

One run has 100 epochs of 1,000 rollouts, one an epoch of 100,000, and one was killed in an epoch of 100,000. Each
rollout has a tool call and a row of some 600 tokens. The journals take a minute each to write, and are kept for the
next time; the pages are asked for in this order, from one server. The memory is the most that a process held.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from urllib.request import HTTPCookieProcessor, build_opener

import yaml
from bench.process_tree import Usage, measured
from bench.report import machine, now

from nat.dashboard.runs import slug_of
from nat.finetuning.rollout_statistics import success_by_example
from nat.runs.journal import Journal
from nat.runs.records import EpochRecord, Phase, ValidationRecord
from nat.runs.rollouts import AnswerRecord, Beginning, ConversationRecord, LeftOutCause, RolloutRecord
from nat.wire.training import Span, TrainingRow

CACHE = Path(__file__).parents[1] / ".tmp" / "many_rollouts"
GENERATIONS, HELD_OUT = 8, 200
PROMPT, CALL, RESULT, ANSWER = 250, 40, 150, 160
"""Tokens of the parts of a rollout."""
HEAD = ["| run: what is looked at | seconds | CPU seconds | MB | measured |", "|---|---:|---:|---:|---|"]
NAT = (sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()")
SYSTEM = "You are a careful assistant of a travel agency. Call the tools, and answer in one short paragraph."
CONFIG = {
    "llms": {"student": {"_type": "local", "model": "models/small"}},
    "workflow": {"_type": "agent", "llm": "student", "system_prompt": SYSTEM},
    "trainer_adapters": {"weights": {"_type": "local_trainer_adapter", "llm": "student"}},
    "finetuning": {"num_epochs": 200, "trainer_adapter": "weights"},
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


@dataclass(frozen=True)
class Size:
    """A run."""

    epochs: int
    rollouts: int
    killed: bool = False
    """True if its last epoch has no record."""

    def __str__(self) -> str:
        return f"{self.epochs} x {self.rollouts:,}{', killed' if self.killed else ''}"

    @property
    def name(self) -> str:
        return f"run-{self.epochs}-{self.rollouts}{'-killed' if self.killed else ''}"


SIZES = (Size(100, 1000), Size(1, 100_000), Size(1, 100_000, killed=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.many_rollouts", description=main.__doc__)
    parser.add_argument("--rollouts", type=int, default=100_000, help="of each run")
    parser.add_argument("--case", default="", metavar="TEXT", help="only the lines that contain this text")
    options = parser.parse_args()
    print(f"{machine()}, {now()}\n\n" + "\n".join(HEAD), flush=True)
    for size in SIZES:
        for row in looked_at(Size(size.epochs, options.rollouts // size.epochs, size.killed), options.case):
            print(row, flush=True)


def looked_at(size: Size, only: str = "", cache: Path = CACHE) -> Iterator[str]:
    """The lines of a run, whose name or title contains `only`."""
    root = cache / size.name
    run_dir = root / "run"
    if not (root / "complete").exists():
        write_run(run_dir, size)
        (root / "complete").touch()

    def line(title: str, used: Callable[[], Usage]) -> Iterator[str]:
        if only in (case := f"| {size}: {title}"):
            usage = used()
            yield f"{case} | {usage.seconds:.2f} | {usage.cpu_seconds:.2f} | {usage.peak_mb:,.0f} | {now()} |"

    with tempfile.TemporaryDirectory() as scratch:
        commands = {
            "`nat runs list`": ("runs", "list", "--output_dir", str(root)),
            "`nat runs show`": ("runs", "show", str(run_dir)),
            "`nat runs show --epoch 1 --worst 1`": ("runs", "show", str(run_dir), "--epoch", "1", "--worst", "1"),
            "`nat runs report`": ("runs", "report", str(run_dir), "--output", f"{scratch}/report.html"),
            "`nat diagnose`": ("diagnose", str(run_dir)),
        }
        for title, command in commands.items():
            yield from line(title, partial(_command, *command))
    pages = {
        "runs": "/",
        "run": (run := f"/runs/{slug_of(run_dir)}"),
        "news": f"{run}/news",
        "held-out": f"{run}/held-out",
        "epoch": (epoch := f"{run}/train/1"),
        "histogram": f"{epoch}/rewards",
        "bin": f"{epoch}/bin?n=0",
        "example": f"{epoch}/example?id=e0",
        "rollout": f"{epoch}/rollout?id=e0&generation=1",
        "compare": f"/compare?a={slug_of(run_dir)}&b={slug_of(run_dir)}",
        "findings": f"{run}/findings",
    }
    with _pages(root) as page:
        for title, path in pages.items():
            yield from line(f"page {title}", partial(page, path))


@contextmanager
def _pages(root: Path) -> Iterator[Callable[[str], Usage]]:
    """Run `nat ui` in a process of its own; the function measures the page of a path."""
    opener = build_opener(HTTPCookieProcessor())
    command = [*NAT, "ui", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            link = re.search(r"(http://[^/]+)/\?(\S+)", server.stdout.readline())
            assert link is not None, "`nat ui` prints its link first"

            def get(path: str) -> Usage:
                with measured(server.pid) as usage, opener.open(link[1] + path) as response:
                    response.read()
                return usage

            get(f"/static/icon.svg?{link[2]}")
            yield get
        finally:
            server.terminate()


def _command(*command: str) -> Usage:
    """What a command of ours takes."""
    before = _cpu_seconds_of_children()
    process = subprocess.Popen([*NAT, *command], stdout=subprocess.DEVNULL)
    with measured(process.pid) as usage:
        assert process.wait() == 0, command
    usage.cpu_seconds = _cpu_seconds_of_children() - before
    return usage


def _cpu_seconds_of_children() -> float:
    """Of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_run(run_dir: Path, size: Size) -> None:
    """A run that was killed after its last epoch, or in it."""
    run_dir.mkdir(parents=True)
    at, random = datetime(2026, 1, 1, tzinfo=UTC), Random(0)
    with Journal.create(run_dir, run_dir.name, yaml.safe_dump(CONFIG), created_at=at) as journal:
        _validate(journal, random, 0, at)
        for epoch in range(size.epochs):
            played: list[RolloutRecord] = []
            journal.record_rollouts(Phase.TRAIN, epoch, _play(random, size.rollouts, played))
            if not size.killed:
                journal.record_epoch(_epoch(epoch, run_dir.name, played, at))
        _validate(journal, random, size.epochs, at)


def _play(random: Random, count: int, played: list[RolloutRecord]) -> Iterator[RolloutRecord]:
    """The rollouts of an epoch; without their texts and tokens, they are added to `played`, too."""
    for number in range(count):
        record = _rollout(random, f"e{number // GENERATIONS}", number % GENERATIONS)
        played.append(record.model_copy(update={"messages": [], "rows": []}))
        yield record


def _validate(journal: Journal, random: Random, epoch: int, at: datetime) -> None:
    records = [_rollout(random, f"held-{number}", 0) for number in range(HELD_OUT)]
    journal.record_rollouts(Phase.VALIDATION, epoch, records)
    scores = {record.example_id: record.reward for record in records}
    journal.record_validation(ValidationRecord(epoch=epoch, timestamp=at, scores=scores, num_rollouts=HELD_OUT))


def _epoch(epoch: int, run_id: str, records: list[RolloutRecord], at: datetime) -> EpochRecord:
    rewards = [record.reward for record in records if record.reward is not None]
    groups = len(records) // GENERATIONS
    return EpochRecord(
        epoch=epoch,
        timestamp=at,
        run_id=run_id,
        avg_reward=sum(rewards) / len(rewards),
        min_reward=min(rewards),
        max_reward=max(rewards),
        num_trajectories=len(rewards),
        num_groups=groups,
        filtered_trajectories=len(rewards),
        filtered_groups=groups,
        num_rollouts=len(records),
        left_out={LeftOutCause.FAILED: len(records) - len(rewards)},
        examples=success_by_example(records),
        metrics={"time/rollout": 60.0, "time/train": 30.0, "train/approx_kl": 0.01, "rollout/calls": 2.0},
    )


def _rollout(random: Random, example_id: str, generation: int) -> RolloutRecord:
    """A question, a call of a tool, its result and an answer; one in a hundred fails."""
    if random.random() < 0.01:
        failed = {"left_out": LeftOutCause.FAILED, "error": "KeyError: 'city'"}
        return RolloutRecord(example_id=example_id, generation=generation, **failed)
    call = {"name": "weather", "arguments": json.dumps({"query": _words(random, CALL // 2)})}
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{example_id}: {_words(Random(example_id), PROMPT - 50)}"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c1", "content": _words(random, RESULT)},
        {"role": "assistant", "content": (output := _words(random, ANSWER))},
    ]
    first = (PROMPT, PROMPT + CALL)
    second = (first[1] + RESULT, first[1] + RESULT + ANSWER)
    spans = [
        Span(start=start, stop=stop, logprobs=[-round(random.random() * 4096) / 1024 for _ in range(stop - start)])
        for start, stop in (first, second)
    ]
    row = TrainingRow(token_ids=[random.randrange(50_000) for _ in range(second[1])], spans=spans)
    answers = [AnswerRecord(message=message, row=0, span=span) for span, message in enumerate((2, 4))]
    return RolloutRecord(
        example_id=example_id,
        generation=generation,
        reward=random.randrange(1001) / 1000,
        messages=messages,
        conversations=[ConversationRecord(began=Beginning.FIRST, messages=5, answers=answers, tools=0)],
        tools=[TOOLS],
        output=output,
        num_calls=2,
        prompt_tokens=PROMPT + second[0],
        completion_tokens=CALL + ANSWER,
        rows=[row],
        functions={"agent": 2},
        models={"models/small": 2},
        seconds=3.5,
    )


def _words(random: Random, count: int) -> str:
    return " ".join(random.choices(_VOCABULARY, k=count))


_VOCABULARY = ["".join(Random(number).choices("etaoinshrdlu", k=5)) for number in range(5000)]

if __name__ == "__main__":
    main()
