import pytest

from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter


def test_a_property_that_became_part_of_the_recipe_is_an_error():
    """Ignored, it would let an algorithm that compares the whole batch lose groups of equal rewards."""
    found = r"Old has attributes that nobody reads any more: compares_across_groups \(set `recipe`\)"
    with pytest.raises(TypeError, match=found):
        type("Old", (TrainerAdapter,), {"compares_across_groups": True})


@pytest.mark.parametrize(
    ("base", "name", "instead"),
    [(TrainerAdapter, "runs_phases", "TakesOver"), (Trainer, "keeps_records", "RecordingTrainer")],
)
def test_an_attribute_that_became_a_base_class_is_an_error(base, name, instead):
    """The message names the class to inherit from."""
    with pytest.raises(TypeError, match=rf"{name} \(inherit from `{instead}`\)"):
        type("Old", (base,), {name: True})
