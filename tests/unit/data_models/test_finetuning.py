import pytest
from pydantic import ValidationError

from nat.data_models.finetuning import (
    CurriculumLearningConfig,
    EpisodeItem,
    EpisodeItemRole,
)


def test_an_assistant_without_logprobs_is_refused():
    """An assistant item without log probabilities cannot be trained on and is refused."""
    with pytest.raises(ValidationError, match="no logprobs"):
        EpisodeItem(role=EpisodeItemRole.ASSISTANT, content="hi")


@pytest.mark.parametrize("logprobs", [{}, [], [-0.1]])
def test_an_assistant_with_any_logprobs_passes(logprobs):
    """Only None is refused; the backend decides about the shape of log probabilities."""
    assert EpisodeItem(role="assistant", content="hi", logprobs=logprobs).logprobs == logprobs


@pytest.mark.parametrize(
    "bad",
    [{"initial_percentile": 0}, {"increment_percentile": 1.1}, {"expansion_interval": 0}, {"random_subsample": 2}],
)
def test_curriculum_bounds(bad):
    """Shares lie in (0, 1], and intervals are at least 1."""
    with pytest.raises(ValidationError):
        CurriculumLearningConfig(**bad)
