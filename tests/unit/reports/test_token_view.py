"""Tokens and their colours."""

import pytest

from fakes.training_rows import row_of
from nat.reports.token_view import SHADES, Colour, colours_of, row_tokens
from nat.wire.training import Span, TrainingRow

ROW = row_of([5, 6, 7, 8], [None, None, 0.0, -3.0])


def test_tokens_that_are_one_character_together_are_one():
    """Their text comes with the last of them, and so do the numbers."""
    tokens = row_tokens(ROW, ["a", None, "é", "!"], 10)
    assert [(token.text, token.sampled) for token in tokens] == [("a", False), ("é", True), ("!", True)]


def test_without_texts_ids_stand_for_them():
    """Only the first tokens of a long row are shown."""
    assert [token.text for token in row_tokens(ROW, None, 3)] == ["5 ", "6 ", "7 "]


def test_the_less_probable_the_stronger_the_colour():
    """A token of probability 1 has the weakest; a prompt has none."""
    shades = [token.shade(Colour.PROBABILITY) for token in row_tokens(ROW, None, 10)]
    assert shades == [None, None, 0, SHADES]
    assert [token.shade(Colour.MASK) for token in row_tokens(ROW, None, 10)] == [None, None, SHADES, SHADES]


def test_a_text_that_was_not_sampled_has_no_probability():
    """Its tokens carry loss all the same."""
    row = TrainingRow(token_ids=[1, 2], spans=[Span(start=1, stop=2)])
    assert colours_of([row]) == [Colour.MASK]
    (_, token) = row_tokens(row, None, 10)
    assert (token.shade(Colour.PROBABILITY), token.title) == (None, "no log probability")


@pytest.mark.parametrize(("logprob", "said"), [(-0.5, "probability 0.607, log -0.500")])
def test_the_numbers_of_a_token_are_its_title(logprob, said):
    """So that they do not depend on seeing colours."""
    assert row_tokens(row_of([1, 2], [None, logprob]), None, 9)[1].title == said
