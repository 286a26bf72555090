"""Run in the environment of the trackers: a run is tracked, killed, goes on and ends.

`python play.py RUN_DIR CONFIG first|again`; CONFIG is that of the tracker as JSON. `first` ends by a kill after two
epochs, `again` adds a third one and the end.
"""

import json
import os
import signal
import sys
from pathlib import Path

from fakes.run_records import NOON, epoch_record, job_record, validation_record
from fakes.runs_on_disk import training_rollouts
from nat.data_models.component_ref import ComponentGroup
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components
from nat.runs.journal import Journal
from nat.runs.records import BestEpoch, BestMeasure, Phase, RunState, RunSummary, Verdict
from nat.runs.tracker import Sending
from nat.wire.training import JobStatus

CONFIG = "llms:\n  student: {_type: local, model: models/small}\nfinetuning: {num_epochs: 3, seed: 7}\n"
SCORES = [{"a": 0.0, "b": 0.0, "c": 1.0, "d": 0.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0}]
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001000000ffff03000006000557"
    "bfabd40000000049454e44ae426082"
)


def record_epoch(journal: Journal, epoch: int) -> None:
    """An epoch with two optimizer steps and five rollouts."""
    steps = [{"loss": 1 / (2 * epoch + step), "grad_norm": 1.0} for step in (1, 2)]
    done = {"epoch": epoch, "steps": steps, "metrics": {"policy_step": 2.0 * epoch + 2}, "finished_at": NOON}
    journal.record(job_record(f"job-{epoch}", JobStatus.COMPLETED, **done))
    journal.record_rollouts(Phase.TRAIN, epoch, training_rollouts())
    metrics = {"train/loss": 0.5 / (epoch + 1), "drift/broken_by_other tokens": float(epoch)}
    journal.record(epoch_record(epoch, 0.25 * (epoch + 1), metrics=metrics))


def record_end(journal: Journal) -> None:
    """The best weights, the plot, the verdict and the end."""
    run_dir = journal.run_dir
    (run_dir / "reward_plot.png").write_bytes(PNG)
    for name in ("model", "checkpoint"):
        (run_dir / name).mkdir()
        (run_dir / name / "model.safetensors").write_bytes(b"weights")
    journal.record(BestEpoch(epoch=3, score=0.75, measure=BestMeasure.HELD_OUT, checkpoint="checkpoint"))
    facts = {"before": 0.25, "after": 0.75, "difference": 0.5, "interval": (0.125, 0.875), "verdict": Verdict.IMPROVED}
    files = {"model": "model", "plot": "reward_plot.png", "best": journal.find(BestEpoch)}
    journal.record(RunSummary(run_id="run-1", epochs=3, seconds=9.0, tokens_trained=300, **facts, **files))
    journal.set_state(RunState.COMPLETED, at=NOON)


def main() -> None:
    run_dir, config, part = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    discover_components()
    kind = current_catalog().components[ComponentGroup.TRACKERS].get(config["_type"]).config_type
    sending = Sending("mine", kind.model_validate(config), run_dir)
    if part == "first":
        run_dir.mkdir(parents=True)
        with Journal.create(run_dir, "run-1", CONFIG, created_at=NOON) as journal:
            journal.record(validation_record(0, SCORES[0]))
            for epoch in (0, 1):
                record_epoch(journal, epoch)
                sending.send()
        os.kill(os.getpid(), signal.SIGKILL)
    with Journal.open(run_dir) as journal:
        record_epoch(journal, 2)
        journal.record(validation_record(3, SCORES[1]))
        sending.send()
        record_end(journal)
    sending.send(last=True)


if __name__ == "__main__":
    main()
