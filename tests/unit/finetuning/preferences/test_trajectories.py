"""Preference pairs of trajectories: what an adapter trains on, and what it leaves out."""

import math
from collections import Counter

import pytest

from fakes.preference_pairs import collection, pair
from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, OpenAIMessage, Trajectory
from nat.errors import InvalidTrajectories, NoLearningSignal
from nat.finetuning.preferences.trajectories import check_any_left, dpo_items, without_problems
from nat.preferences.pairs import SkipCause


def test_ties_equal_responses_and_scores_that_are_no_numbers_are_counted():
    """Each pair that cannot teach is left out under its own cause; the others stay."""
    kept, causes = without_problems(
        collection(
            pair("a", scores=(1.0, 0.0)),
            pair("a", scores=(0.0, 5e-13)),
            pair("a", scores=(0.5, 0.5)),
            pair("a", scores=(0.1 + 0.2, 0.3)),
            pair("b", chosen="same", rejected="same", scores=(0.5, 0.5)),
            pair("b", scores=(math.nan, 0.0)),
            pair("b", scores=(math.inf, 0.0)),
            pair("b", scores=("high", 0.0), reward=1.0),
            pair("b", reward=math.nan, scores=None),
        )
    )
    assert [len(group) for group in kept.trajectories] == [2]
    assert causes == Counter({SkipCause.BAD_SCORE: 4, SkipCause.TIE: 2, SkipCause.EQUAL_RESPONSES: 1})


@pytest.mark.parametrize(
    ("trajectories", "error", "text"),
    [
        ([pair("a", scores=(1, 1)), pair("b", chosen="x", rejected="x")], NoLearningSignal, "1 x two candidates of a"),
        ([pair("a", scores=(math.nan, 0))], InvalidTrajectories, "1 x a candidate's score is not a finite number"),
        ([], InvalidTrajectories, "none of 0 trajectories has a preference pair"),
        (
            [Trajectory(episode=[EpisodeItem(role=EpisodeItemRole.USER, content="hi")], reward=1)],
            InvalidTrajectories,
            "none of 1 trajectories has a preference pair",
        ),
    ],
)
def test_nothing_left_is_a_named_error(trajectories, error, text):
    """If no pair is left, the error counts the causes and has the remedy of the most frequent one."""
    with pytest.raises(error, match=text) as raised:
        check_any_left(*without_problems(collection(*trajectories)))
    assert raised.value.hint


@pytest.mark.parametrize("end", ["", "\n"])
def test_an_answer_that_the_workflow_recorded_with_the_prompt_is_no_part_of_it(end):
    """A prompt that ends with one of the responses, up to white space, would train the model to repeat its answer."""
    question = OpenAIMessage(role="user", content="now")

    def prompt(answer):
        [item] = dpo_items(pair("a", prompt=[question, OpenAIMessage(role="assistant", content=answer)]))
        return item.prompt

    assert prompt(f"good{end}") == prompt(f"bad{end}") == [question]
    assert len(prompt(f"else{end}")) == 2
