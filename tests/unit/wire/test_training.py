import pytest
from pydantic import ValidationError

from nat.wire.training import TrainingConfig


@pytest.mark.parametrize("given", ["sometimes", 3, -1, None])
def test_a_choice_of_several_types_is_one_error(given):
    """The message lists all choices, whatever their type."""
    with pytest.raises(ValidationError) as caught:
        TrainingConfig(gradient_checkpointing=given)
    [error] = caught.value.errors()
    assert error["loc"] == ("gradient_checkpointing",)
    assert error["msg"] == "Input should be 'auto', True or False"
