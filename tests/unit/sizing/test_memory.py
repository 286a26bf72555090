"""Predictions of memory, beside the measurements in docs/evidence/figures/memory.csv."""

from dataclasses import replace

import pytest
from bench import figures
from bench.memory import CASES, Case
from bench.shapes import SHAPES

from nat.sizing.memory import SHORTEST_ROW, Setup, Workload, longest_row, predict, predict_rank
from nat.sizing.remedies import remedies
from nat.sizing.shape import ModelShape

ALLOWED = 0.15
SHAPE = ModelShape(151936, 896, 4864, 24, 14, 2, 64, tied=True)
WORKLOAD = Workload(chats=16, chat_tokens=1024, row_tokens=1024, step_tokens=16 * 1024)
GB = 10**9


def measured() -> dict[str, float]:
    """Megabytes by case, from the file."""
    return {row["shape, dtype, weights: chats; rows"]: float(row["peak, MB"]) for row in figures.read("memory")}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_predictions_are_near_what_was_measured(case: Case):
    """The model of memory is within 15 % of every measurement that the docs list."""
    shape = ModelShape.of_config(SHAPES[case.shape]().to_dict())
    predicted = predict(shape, case.setup, case.workload).total / 2**20
    assert predicted == pytest.approx(measured()[str(case)], rel=ALLOWED)


def test_at_least_ten_cases_are_measured():
    """The docs list no case that the bench does not have."""
    assert measured().keys() == {str(case) for case in CASES}
    assert len(CASES) >= 10


def test_further_ranks_count_on_a_cpu_and_have_cards_of_their_own_on_gpus():
    """On a CPU they share the machine's memory; each holds weights and gradients, and neither moments nor a sampler."""
    one, three = (predict(SHAPE, Setup("cpu", "float32", ranks=ranks), WORKLOAD) for ranks in (1, 3))
    each = predict_rank(SHAPE, Setup("cpu", "float32"), WORKLOAD)
    assert three.total - one.total == three.parts["further ranks of the learner"] == 2 * each
    weights = SHAPE.num_parameters * 4
    assert 2 * weights < each < one.total
    cards = [predict(SHAPE, Setup("cuda", "bfloat16", ranks=ranks), WORKLOAD).total for ranks in (1, 8)]
    assert cards[0] == cards[1]


def test_shards_take_a_part_of_the_memory_each():
    """Of layers and gradients, the more ranks the less; the first card's gradient is in host memory."""
    whole, *parts = (Setup("cuda", "bfloat16", ranks=ranks, shard=ranks > 1) for ranks in (1, 3, 8))
    needs = [predict_rank(SHAPE, each, WORKLOAD) for each in (replace(parts[1], shard=False), *parts)]
    assert needs == sorted(needs, reverse=True)
    first, alone = predict(SHAPE, parts[0], WORKLOAD), predict(SHAPE, whole, WORKLOAD)
    assert "gradients" not in first.parts
    assert first.total < alone.total
    assert first.host - alone.host == 4 * SHAPE.num_parameters
    several = replace(parts[1], shard=False)
    assert any(each.settings == "shard: true" for each in remedies(SHAPE, several, WORKLOAD, room=alone.total - 1))


def test_one_rank_is_a_remedy_on_a_cpu():
    """Where the further ones are what does not fit, it is the first remedy."""
    one, many = Setup("cpu", "float32"), Setup("cpu", "float32", ranks=64)
    room = predict(SHAPE, one, WORKLOAD).total
    assert remedies(SHAPE, many, WORKLOAD, room=room)[0].settings == "devices: 1"
    assert not any("devices" in each.settings for each in remedies(SHAPE, one, WORKLOAD, room=room))


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
