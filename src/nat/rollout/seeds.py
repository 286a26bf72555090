"""Seeds of rollouts: the same in every process, so that a run can be repeated."""

from nat.capture.policy import stable_seed


def training_seed(seed: int, pass_index: int, item_id: str) -> int:
    """Another seed in each pass over the data: the generations of an example must differ."""
    return stable_seed(seed, "train", pass_index, item_id)


def held_out_seed(seed: int, item_id: str) -> int:
    """The same seed in each pass: before and after play the same games. Repetitions differ by their id."""
    return stable_seed(seed, "held-out", item_id)
