import pytest

from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter


def test_a_property_that_became_part_of_the_recipe_is_an_error():
    """Ignored, it would let an algorithm that compares the whole batch lose groups of equal rewards."""
    with pytest.raises(TypeError, match="Old has compares_across_groups, which nobody reads any more: set `recipe`"):
        type("Old", (TrainerAdapter,), {"compares_across_groups": True})
