import pytest
from pydantic import ValidationError

from nat.wire.training import TrainingConfig


def test_a_moved_setting_names_its_new_place():
    """The error says which algorithm has it as an option, and under which name."""
    with pytest.raises(
        ValidationError, match=r"kimi_k2_tau: now set by `algorithm: art` .*`options: {kimi_k2_tau: …}`"
    ):
        TrainingConfig.model_validate({"kimi_k2_tau": 0.1})
    renamed = r"`options: {num_trajectories_learning_rate_multiplier_power: …}`"
    with pytest.raises(ValidationError, match=renamed):
        TrainingConfig.model_validate({"rollouts_learning_rate_power": 0.5})
