from pathlib import Path

import pytest

from nat.config.load import load_config
from nat.finetuning.plan_rules import num_shared, unlimited_answers

EXAMPLE = Path(__file__).parents[3] / "examples" / "tic_tac_toe" / "configs" / "finetune.yml"


def games(prefix, *contents):
    return [(f"{prefix}{n}", content) for n, content in enumerate(contents)]


def test_the_same_content_is_the_same_example_under_any_id():
    """A held-out example in the training data counts once, however often it is trained on."""
    training = games("train-", "a", "b", "c", "a")
    assert num_shared(training, games("held-", "x", "a", "c", "y")) == 2
    assert num_shared(training, games("held-", "x", "y")) == 0


def test_equal_games_are_distinguished_by_their_ids():
    """Their ids seed the games, so equal first moves are no shared content."""
    training = games("train-", *"XOXOXO")
    assert num_shared(training, games("held-", *"XOXO")) == 0
    assert num_shared(training, training[:4]) == 4


@pytest.mark.parametrize(("limit", "warns"), [(2, False), (None, True)])
def test_answers_without_a_limit_are_told_before_they_are_paid(limit, warns):
    """The key is named if the trained model's answers may fill its context."""
    config = load_config(EXAMPLE)
    llm = config.llms["player"].model_copy(update={"max_tokens": limit})
    said = unlimited_answers("player", {"player": llm})
    assert [text.partition(" ")[0] for text in said] == ["llms.player.max_tokens"] * warns
