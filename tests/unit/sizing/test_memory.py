"""Predictions of memory, beside the measurements in docs/evidence/figures/memory.csv."""

import pytest
from bench.shapes import SHAPES

from nat.sizing.memory import SHORTEST_ROW, Setup, Workload, longest_row, predict
from nat.sizing.remedies import remedies
from nat.sizing.shape import ModelShape

ALLOWED = 0.15
SHAPE = ModelShape(151936, 896, 4864, 24, 14, 2, 64, tied=True)
WORKLOAD = Workload(chats=16, chat_tokens=1024, row_tokens=1024, step_tokens=16 * 1024)
GB = 10**9


MEASURED = {
    "smollm2-135m": (Setup("cpu", "float32"), Workload(8, 72, 128, 8 * 128, epoch_tokens=8 * 72), 4989),
    "smollm2-135m, LoRA": (Setup("cpu", "float32", 16), Workload(8, 72, 512, 4 * 512, epoch_tokens=8 * 72), 4639),
    "qwen2.5-0.5b, LoRA": (Setup("cpu", "bfloat16", 16), Workload(4, 68, 512, 2 * 512, epoch_tokens=4 * 68), 4773),
}
"""Megabytes of three rows of docs/evidence/figures/memory.csv."""


@pytest.mark.parametrize("name", MEASURED)
def test_predictions_are_near_what_was_measured(name):
    """The model of memory is within 15 % of a measurement."""
    setup, workload, megabytes = MEASURED[name]
    shape = ModelShape.of_config(SHAPES[name.partition(",")[0]]().to_dict())
    assert predict(shape, setup, workload).total / 2**20 == pytest.approx(megabytes, rel=ALLOWED)


def test_the_parts_add_up():
    """The total is the sum of the parts at one moment; adapters have smaller gradients and moments than all weights."""
    full, lora = (predict(SHAPE, Setup("cpu", "float32", rank), WORKLOAD) for rank in (None, 16))
    assert full.total == sum(full.parts.values())
    assert full.parts["weights"] == SHAPE.num_parameters * 4
    assert full.parts["optimizer"] == SHAPE.num_parameters * 8
    assert lora.parts["optimizer"] == SHAPE.adapter_weights(16) * 8


def test_the_longest_row_is_the_last_that_fits():
    """One token more would take more than there is."""
    setup = Setup("cpu", "bfloat16", 16, gradient_checkpointing=False)
    room = 12 * GB
    longest = longest_row(SHAPE, setup, WORKLOAD, room=room, most=10**6)
    fits, too_long = (predict(SHAPE, setup, WORKLOAD.with_rows(longest + more), free=room).total for more in (0, 1))
    assert fits <= room < too_long
    assert longest_row(SHAPE, setup, WORKLOAD, room=room, most=SHORTEST_ROW) == SHORTEST_ROW
    assert longest_row(SHAPE, setup, WORKLOAD, room=GB, most=10**6) is None


def test_remedies_fit():
    """Each remedy is a change of the setup with which the prediction fits; LoRA is among them."""
    setup, room = Setup("cpu", "float32"), 8 * GB
    found = remedies(SHAPE, setup, WORKLOAD, room=room)
    assert predict(SHAPE, setup, WORKLOAD, free=room).total > room
    assert found
    assert all(remedy.bytes <= room for remedy in found)
    assert any("lora: {rank: 16}" in remedy.settings for remedy in found)
    assert remedies(SHAPE, setup, WORKLOAD, room=GB // 2) == ()
