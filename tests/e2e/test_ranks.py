"""`nat finetune` with `devices: 2`: two processes train what one does."""

import sqlite3
from json import loads
from pathlib import Path

import pytest

from e2e.test_local_run import finished, games
from nat.runs.journal import JOURNAL_NAME

__all__ = ["games"]
pytestmark = pytest.mark.usefixtures("forked_processes")

ONE_EPOCH = ("-o", "finetuning.num_epochs", "1")


def metrics(output_dir: Path) -> list[dict[str, float]]:
    """Of each epoch's update."""
    (run,) = output_dir.glob(f"2*/{JOURNAL_NAME}")
    with sqlite3.connect(run) as journal:
        epochs = journal.execute("SELECT record FROM epochs ORDER BY epoch").fetchall()
    return [loads(record)["metrics"] for (record,) in epochs]


def test_a_run_trains_with_two_ranks(tmp_path, games):
    """The run ends well, with an update that the sampler is proven to serve, and a log of the second rank."""
    finished(tmp_path, *games, *ONE_EPOCH, "-o", "llms.player.devices", "2")
    assert list(tmp_path.glob("2*/ranks/rank_1.log"))
    (found,) = metrics(tmp_path)
    assert found["train/served_diff_mean"] < 1e-4 < found["train/approx_kl"]


@pytest.mark.ranks
def test_a_run_with_several_ranks_trains_as_one_process_does(tmp_path, games):
    """The first update, from the same weights and seeds, has the same loss and gradient norm, also of shards."""
    found = []
    for devices, shard in (("1", "false"), ("2", "false"), ("3", "true")):
        options = ("-o", "llms.player.devices", devices, "-o", "llms.player.shard", shard)
        finished(tmp_path / devices, *games, *ONE_EPOCH, *options)
        found += metrics(tmp_path / devices)
    for name in ("train/loss", "train/grad_norm", "train/entropy", "train/approx_kl", "train/trained_tokens"):
        assert [each[name] for each in found[1:]] == pytest.approx([found[0][name]] * 2, rel=1e-4), name
    assert all(each["train/served_diff_mean"] < 1e-4 for each in found)
