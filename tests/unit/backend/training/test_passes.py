"""How ranks share the passes of an update; test_ranks.py proves what they compute."""

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.training.batch import make_batch
from nat.backend.training.passes import shared
from nat.wire.training import TrainingConfig


def test_the_longest_micro_batches_go_to_different_ranks(loaded):
    """Each goes to the rank with the fewest tokens so far; with more ranks than micro-batches, some get none."""
    rows = make_batch(random_groups(loaded), resolve(TrainingConfig())).rows
    micro_batches = [rows[:3], rows[3:4], rows[4:6]]
    assert shared(micro_batches, 2) == [[rows[:3]], [rows[4:6], rows[3:4]]]
    assert shared(micro_batches, 4) == [[rows[:3]], [rows[4:6]], [rows[3:4]], []]
