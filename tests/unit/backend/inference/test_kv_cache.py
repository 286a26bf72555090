import torch

from nat.backend.inference.kv_cache import SlotCache


def test_growing_keeps_the_stored_tokens():
    """Adding slots or a longer context copies the stored tokens and loses none."""
    cache = SlotCache()
    cache.reserve(2, 5)
    keys, values = cache.layer(0, torch.zeros(3, 1, 4), torch.zeros(3, 1, 6))
    keys[1, :, 2], values[1, :, 2] = 1.5, 2.5
    cache.reserve(9, 300)
    keys, values = cache.layer(0, torch.zeros(3, 1, 4), torch.zeros(3, 1, 6))
    assert keys.shape == (9, 3, 320, 4)
    assert values.shape == (9, 3, 320, 6)
    assert keys[1, :, 2].eq(1.5).all()
    assert values[1, :, 2].eq(2.5).all()


def test_slots_grow_by_half_up_to_the_most_that_run():
    """Sequences that join one by one cause few copies, and no slot is made that nothing can use."""
    cache, found = SlotCache(max_slots=10), []
    for slots in range(1, 11):
        cache.reserve(slots, 8)
        keys, _ = cache.layer(0, torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
        found.append(keys.shape[0])
    assert found == [1, 2, 3, 4, 6, 6, 9, 9, 9, 10]


def test_slots_that_grow_in_number_shrink_in_length():
    """Many short chats after a long one, or one long chat after them, do not get long slots for all."""
    cache = SlotCache()
    for slots, length, shape in [(1, 640, (1, 640)), (20, 50, (20, 64)), (2, 600, (2, 640)), (3, 600, (3, 640))]:
        cache.reserve(slots, length)
        keys, _ = cache.layer(0, torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))
        assert (keys.shape[0], keys.shape[2]) == shape


def test_moving_copies_a_sequence_to_another_slot():
    """Moving a sequence copies only its filled positions."""
    cache = SlotCache()
    cache.reserve(2, 4)
    keys, _ = cache.layer(0, torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
    keys[1] = 1.0
    cache.move(1, 0, 3)
    assert keys[0, 0, :, 0].tolist()[:5] == [1, 1, 1, 0, 0]
