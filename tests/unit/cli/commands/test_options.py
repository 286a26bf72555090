"""Numbers and options on the command line."""

import click
import pytest

from nat.cli.commands.finetune import finetune_command
from nat.cli.commands.options import Amount, Seconds


@pytest.mark.parametrize(("text", "seconds"), [("30", 30.0), ("30s", 30.0), ("0.5", 0.5), (12.5, 12.5)])
def test_seconds_may_have_their_unit(text, seconds):
    """`--grace 30s` reads better."""
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["0", "-1s", "nan", "inf", "30m", "s", ""])
def test_seconds_are_a_duration(text):
    """A grace that is no time, or without end, is a mistake."""
    with pytest.raises(click.BadParameter):
        Seconds().convert(text, None, None)


def test_an_amount_is_a_number():
    """NaN would pass every comparison with the bound."""
    assert Amount().convert("0", None, None) == 0
    with pytest.raises(click.BadParameter, match="expected a number of at least 0"):
        Amount().convert("nan", None, None)


def test_a_resumed_run_leaves_the_option_required():
    """For the next command of the process, and for its page of options."""
    option = next(each for each in finetune_command.params if each.name == "config_file")
    option.handle_parse_result(click.Context(finetune_command), {"resume": "latest"}, [])
    assert option.required
