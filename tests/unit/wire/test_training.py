import pytest
from pydantic import ValidationError

from nat.wire.training import TrainingConfig, TrainingJob

ROW = '[{"id": "g", "rollouts": [{"reward": 1, "rows": [{%s}]}]}]'


@pytest.mark.parametrize(
    "groups",
    [
        "[MANY]",
        '[{"id": "g", "rollouts": [MANY]}]',
        '[{"id": "g", "rollouts": [{"reward": 1, "rows": [MANY]}]}]',
        ROW % '"token_ids": [MANY], "spans": []',
        ROW % '"token_ids": [1, 2], "spans": [MANY]',
        ROW % '"token_ids": [1, 2], "spans": [{"start": 1, "stop": 2, "logprobs": [MANY]}]',
    ],
)
def test_a_list_of_mistakes_is_one_error(groups):
    """Each error of pydantic takes a kilobyte, and a batch may have millions of values."""
    many = ",".join(['"x"'] * 1000)
    with pytest.raises(ValidationError) as error:
        TrainingJob.model_validate_json(f'{{"id": "j", "groups": {groups.replace("MANY", many)}}}')
    assert error.value.error_count() == 1


@pytest.mark.parametrize("given", ["sometimes", 3, -1, None])
def test_a_choice_of_several_types_is_one_error(given):
    """The message lists all choices, whatever their type."""
    with pytest.raises(ValidationError) as caught:
        TrainingConfig(gradient_checkpointing=given)
    [error] = caught.value.errors()
    assert error["loc"] == ("gradient_checkpointing",)
    assert error["msg"] == "Input should be 'auto', True or False"


@pytest.mark.parametrize(
    "name", ["warmup_steps", "decay_steps", "max_completion_length", "steps_per_batch", "micro_batch_tokens"]
)
def test_a_count_that_no_float_holds_is_refused(name):
    """The error names the setting; training would end with an overflow."""
    with pytest.raises(ValidationError, match=rf"{name}\n.*less than or equal to 2147483647"):
        TrainingConfig.model_validate({name: 10**400})
