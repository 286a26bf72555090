import pytest

from nat.config import parse_config
from nat.errors import ConfigError
from nat.plugins.customizer.dpo.config import DPOTrajectoryBuilderConfig


def builder(**fields):
    return {"trajectory_builders": {"pairs": {"_type": "dpo_traj_builder", **fields}}}


def read(**fields) -> DPOTrajectoryBuilderConfig:
    return parse_config(builder(**fields)).trajectory_builders["pairs"]


def test_the_defaults_are_the_toolkits():
    """A block without keys does what it does in the toolkit; our own limit is off."""
    assert read().model_dump(exclude={"type", "reward"}) == {
        "ttc_step_name": "dpo_candidate_move",
        "exhaustive_pairs": True,
        "min_score_diff": 0.0,
        "max_pairs_per_turn": None,
        "max_pairs_per_example": None,
        "reward_from_score_diff": True,
        "require_multiple_candidates": True,
    }


@pytest.mark.parametrize("wrong", [{"min_score_diff": -0.1}, {"max_pairs_per_turn": 0}, {"max_pairs_per_example": 0}])
def test_numbers_have_bounds(wrong):
    """A limit of no pairs and a negative difference are refused with their path."""
    with pytest.raises(ConfigError, match=rf"trajectory_builders\.pairs\.{next(iter(wrong))}"):
        read(**wrong)


def test_the_former_name_is_read_with_a_warning(caplog):
    """The toolkit ignores `custom_step_name`, which its own example has; here it has the effect that it promises."""
    assert read(custom_step_name="my_step").ttc_step_name == "my_step"
    assert "custom_step_name is the former name of ttc_step_name and is read as that; rename it" in caplog.text


def test_two_names_must_agree():
    """If both are given and differ, neither is guessed."""
    assert read(custom_step_name="a", ttc_step_name="a").ttc_step_name == "a"
    with pytest.raises(ConfigError, match="the two differ: 'a' and 'b'; remove custom_step_name"):
        read(custom_step_name="a", ttc_step_name="b")
