"""Bytes on disk and CPU time of a rollout of 16 k tokens: in the journal, and in the file of trajectories.

A rollout has 8 turns of 128 tokens of prompt and 1920 tokens of answer, each token a word of 5 letters and a space. Log
probabilities are float32, as servers compute them. The floor is 4 bytes for each token id and 4 for each log
probability, without compression, and the text of the messages.
"""

import struct
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from nat.runs.folder import trajectories_path, write_trajectories
from nat.runs.journal import JOURNAL_NAME, Journal
from nat.runs.records import Phase
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import Span, TrainingRow

ROLLOUTS, TURNS, PROMPT, ANSWER, VOCABULARY = 32, 8, 128, 1920, 50_000


def main() -> None:
    """Print where the bytes of a rollout are, and what writing and reading cost."""
    random = Random(0)
    records = [_rollout(random, number) for number in range(ROLLOUTS)]
    tokens = TURNS * (PROMPT + ANSWER)
    text = sum(len(message["content"]) for message in records[0].messages)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Journal.create(folder, "run", "", created_at=datetime.now(UTC)) as journal:
            written = _cpu_ms(lambda: journal.record_rollouts(Phase.TRAIN, 0, records))
        with Journal.open(folder, read_only=True) as journal:
            read = _cpu_ms(lambda: list(journal.rollouts(Phase.TRAIN, 0)))
            exported = _cpu_ms(lambda: write_trajectories(journal, Phase.TRAIN, 0))
        places = {
            "the journal": (folder / JOURNAL_NAME, f"{written:.1f} to write, {read:.1f} to read"),
            "its line in `trajectories/`": (trajectories_path(folder, Phase.TRAIN, 0), f"{exported:.1f} to write"),
        }
        sizes = {place: (path.stat().st_size / ROLLOUTS, cpu) for place, (path, cpu) in places.items()}
    print(f"A rollout of {tokens:,} tokens; ids and log probabilities {8 * tokens:,} bytes, text {text:,}.\n")
    print("| a rollout in | bytes | per token | CPU, ms |\n|---|---:|---:|---|")
    for place, (size, cpu) in sizes.items():
        print(f"| {place} | {size:,.0f} | {size / tokens:.1f} | {cpu} |")


def _rollout(random: Random, number: int) -> RolloutRecord:
    token_ids: list[int] = []
    spans: list[Span] = []
    messages: list[dict[str, Any]] = []
    for _ in range(TURNS):
        for role, count in (("user", PROMPT), ("assistant", ANSWER)):
            token_ids += [random.randrange(VOCABULARY) for _ in range(count)]
            if role == "assistant":
                logprobs = [_float32(-random.expovariate(1.0)) for _ in range(count)]
                spans.append(Span(start=len(token_ids) - count, stop=len(token_ids), logprobs=logprobs))
            words = ["".join(random.choices("etaoinshrdlu", k=5)) for _ in range(count)]
            messages.append({"role": role, "content": " ".join(words)})
    row = TrainingRow(token_ids=token_ids, spans=spans)
    return RolloutRecord(example_id=str(number), generation=0, reward=1.0, messages=messages, rows=[row])


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds for each rollout."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began) / ROLLOUTS


if __name__ == "__main__":
    main()
