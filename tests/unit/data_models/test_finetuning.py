import pytest
from pydantic import ValidationError

from nat.data_models.finetuning import (
    CurriculumLearningConfig,
    EpisodeItem,
    EpisodeItemRole,
    FinetuneConfig,
    FinetuneRunConfig,
    RewardFunctionConfig,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryBuilderConfig,
)


def test_an_assistant_without_logprobs_is_refused():
    """An assistant item without log probabilities cannot be trained on and is refused."""
    with pytest.raises(ValidationError, match="no logprobs"):
        EpisodeItem(role=EpisodeItemRole.ASSISTANT, content="hi")


@pytest.mark.parametrize("logprobs", [{}, [], [-0.1]])
def test_an_assistant_with_any_logprobs_passes(logprobs):
    """Only None is refused; the backend decides about the shape of log probabilities."""
    assert EpisodeItem(role="assistant", content="hi", logprobs=logprobs).logprobs == logprobs


def test_other_roles_need_no_logprobs():
    """Items that the model did not write need no log probabilities."""
    assert EpisodeItem(role="tool", content="4").logprobs is None


def test_defaults_of_the_guide():
    """The defaults equal those of the guide."""
    config = FinetuneConfig()
    assert config.target_functions == ["<workflow>"]
    assert config.num_epochs == 1
    assert config.curriculum_learning.expansion_interval == 5
    assert config.curriculum_learning.min_reward_diff == 0.1


@pytest.mark.parametrize(
    "bad",
    [{"initial_percentile": 0}, {"increment_percentile": 1.1}, {"expansion_interval": 0}, {"random_subsample": 2}],
)
def test_curriculum_bounds(bad):
    """Shares lie in (0, 1], and intervals are at least 1."""
    with pytest.raises(ValidationError):
        CurriculumLearningConfig(**bad)


def test_run_config_allows_unknown_keys():
    """Callers may add keys of their own."""
    assert FinetuneRunConfig(config_file="c.yml", target_functions=["x"]).validation_interval == 5


def test_reward_can_be_assigned():
    """The guide's `initialize` copies the reward function into the component's config."""
    config = TrajectoryBuilderConfig()
    config.reward = RewardFunctionConfig(name="r")
    assert config.reward.name == "r"


def test_status_prints_its_value():
    """A status prints as `completed` in log lines, not as the name of a class."""
    assert f"{TrainingStatusEnum.COMPLETED}" == "completed"
    with pytest.raises(ValidationError):
        TrainingJobStatus(run_id="r", backend="b", status="running", progress=101)
